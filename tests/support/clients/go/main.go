// Runs clients/go/postdate. "conformance FILE" prints its result for each case as one line of JSON.
// "live BROKER REQUESTS PARTITIONS TARGET" schedules three messages, cancels two, returns the third, repeats a fourth,
// and prints the messages that it reads.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"postdate/clients/postdate"
)

type input struct {
	Partitions      int32
	Target, Topic   string
	Key, Value      []byte
	Headers         [][2]json.RawMessage
	ID, Origin      *string
	AtUs            *int64 `json:"at_us"`
	DelayUs         *int64 `json:"delay_us"`
	GraceUs         int64  `json:"grace_us"`
	Level           *int
	TargetPartition *int32 `json:"target_partition"`
	Policy, Error   string

	WindowUs  int64              `json:"window_us"`
	LatestUs  int64              `json:"latest_us"`
	IfPending postdate.IfPending `json:"if_pending"`
	IfEnded   string             `json:"if_ended"`
	Spread    string

	Cron, Zone string
	Gap        postdate.Gap
	Fold       postdate.Fold
	Missed     postdate.Missed
	Count      int64
	EveryUs    int64  `json:"every_us"`
	PhaseUs    int64  `json:"phase_us"`
	CatchUpUs  int64  `json:"catch_up_us"`
	StartUs    *int64 `json:"start_us"`
	EndUs      *int64 `json:"end_us"`

	IDPrefix string `json:"id_prefix"`
	FromUs   *int64 `json:"from_us"`
	UntilUs  *int64 `json:"until_us"`
	ByUs     int64  `json:"by_us"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func (given input) headers() (headers []kgo.RecordHeader) {
	for _, each := range given.Headers {
		header := kgo.RecordHeader{}
		must(0, json.Unmarshal(each[0], &header.Key))
		must(0, json.Unmarshal(each[1], &header.Value))
		headers = append(headers, header)
	}
	return headers
}

func (given input) when() postdate.When {
	switch {
	case given.AtUs != nil:
		return postdate.At(time.UnixMicro(*given.AtUs))
	case given.DelayUs != nil:
		return postdate.After(time.Duration(*given.DelayUs) * time.Microsecond)
	case given.Level != nil:
		return postdate.Level(*given.Level)
	}
	return postdate.When{}
}

func (given input) named() postdate.Named {
	switch {
	case given.ID != nil:
		return postdate.ByID(*given.ID)
	case given.Origin != nil:
		return postdate.ByOrigin(*given.Origin)
	}
	return postdate.Named{}
}

func length(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func instant(us *int64) time.Time {
	if us == nil {
		return time.Time{}
	}
	return time.UnixMicro(*us)
}

func (given input) id() string {
	if given.ID == nil {
		return ""
	}
	return *given.ID
}

func bulk(requests *postdate.Requests, call string, given input) ([]*kgo.Record, error) {
	selection := postdate.Selection{Target: given.Target, IDPrefix: given.IDPrefix, Key: given.Key,
		From: instant(given.FromUs), Until: instant(given.UntilUs)}
	switch call {
	case "cancel_selected":
		return requests.CancelSelected(selection)
	case "deliver_selected":
		return requests.DeliverSelected(selection)
	}
	return requests.RescheduleSelected(selection, length(given.ByUs))
}

func request(requests *postdate.Requests, call string, given input) (*kgo.Record, error) {
	switch call {
	case "cancel":
		return requests.Cancel(given.named())
	case "deliver":
		return requests.Deliver(given.named())
	case "pause":
		return requests.Pause(given.named())
	case "resume":
		return requests.Resume(given.named())
	case "trigger":
		return requests.Trigger(given.named())
	case "backfill":
		return requests.Backfill(given.named(), instant(given.StartUs), instant(given.EndUs))
	case "reschedule":
		return requests.Reschedule(given.named(), given.when(), length(given.GraceUs))
	case "retry":
		consumed := &kgo.Record{Topic: given.Topic, Key: given.Key, Value: given.Value, Headers: given.headers()}
		return requests.Retry(consumed, given.Policy, given.Error)
	case "repeat":
		return requests.Repeat(postdate.Recurring{Target: given.Target, Value: given.Value, Key: given.Key,
			Headers: given.headers(), ID: given.id(), Cron: given.Cron, Zone: given.Zone, Gap: given.Gap, Fold: given.Fold,
			Every: length(given.EveryUs), Phase: length(given.PhaseUs), Start: instant(given.StartUs), End: instant(given.EndUs),
			Count: given.Count, Missed: given.Missed, CatchUp: length(given.CatchUpUs), Grace: length(given.GraceUs),
			Window: length(given.WindowUs), TargetPartition: given.TargetPartition})
	}
	return requests.Schedule(postdate.Message{Target: given.Target, Value: given.Value, Key: given.Key,
		Headers: given.headers(), When: given.when(), ID: given.id(), Grace: length(given.GraceUs),
		TargetPartition: given.TargetPartition, Window: length(given.WindowUs), SpreadEvenly: given.Spread == "even",
		IfPending: given.IfPending, DropIfEnded: given.IfEnded == "drop", Latest: length(given.LatestUs)})
}

func fields(record *kgo.Record) map[string]any {
	return map[string]any{"partition": optional(record.Partition+1, record.Partition), "key": record.Key,
		"value": record.Value, "headers": pairs(record.Headers)}
}

func pairs(headers []kgo.RecordHeader) [][2]any {
	found := [][2]any{}
	for _, each := range headers {
		found = append(found, [2]any{each.Key, each.Value})
	}
	return found
}

func optional[T comparable](value T, text any) any {
	var none T
	if value == none {
		return nil
	}
	return text
}

func origin(named *postdate.Origin) any {
	if named == nil {
		return nil
	}
	return named.String()
}

func delivered(read postdate.Delivered) map[string]any {
	return map[string]any{
		"origin": read.Origin.String(), "due_ms": read.Due.UnixMilli(), "id": optional(read.ID, read.ID),
		"attempt": optional(read.Attempt, read.Attempt), "first_origin": origin(read.FirstOrigin),
		"first_due_ms": optional(read.FirstDue, any(read.FirstDue.UnixMilli())),
		"error":        optional(read.Error, read.Error), "headers": pairs(read.Headers),
		"extra":      optional(read.Extra, read.Extra),
		"occurrence": optional(read.Occurrence, read.Occurrence), "next_ms": optional(read.Next, any(read.Next.UnixMilli())),
	}
}

func result(name, call string, given input) (string, any, error) {
	switch call {
	case "partition":
		return "partition", postdate.PartitionFor(given.Key, given.Partitions), nil
	case "delivered":
		read, err := postdate.ReadDelivered(given.headers())
		return "delivered", delivered(read), err
	case "verdict":
		read, err := postdate.ReadVerdict(given.Value)
		made := map[string]any{"origin": read.Origin.String(), "id": optional(read.ID, read.ID), "verdict": read.Verdict,
			"of": origin(read.Of), "by": origin(read.By), "at_ms": read.At.UnixMilli(), "count": nil}
		if read.Verdict == postdate.Applied {
			made["count"] = read.Count
		}
		return "answer", made, err
	}
	requests := must(postdate.NewRequests(name, given.Partitions))
	if strings.HasSuffix(call, "_selected") {
		records, err := bulk(requests, call, given)
		made := []any{}
		for _, record := range records {
			made = append(made, fields(record))
		}
		return "records", made, err
	}
	record, err := request(requests, call, given)
	if err != nil {
		return "", nil, err
	}
	return "record", fields(record), nil
}

func conform(path string) {
	var file struct {
		Requests string
		Cases    []struct {
			Call  string
			Only  []string
			Input input
		}
	}
	must(0, json.Unmarshal(must(os.ReadFile(path)), &file))
	for _, each := range file.Cases {
		if each.Only != nil && !slices.Contains(each.Only, "go") {
			continue
		}
		name, made, err := result(file.Requests, each.Call, each.Input)
		var invalid *postdate.RequestInvalid
		var malformed *postdate.FormatError
		switch {
		case errors.As(err, &invalid):
			name, made = "error", invalid.Reason
		case errors.As(err, &malformed):
			name, made = "error", "format"
		case err != nil:
			log.Fatal(err)
		}
		fmt.Println(string(must(json.Marshal(map[string]any{name: made}))))
	}
}

func live(broker, name, partitions, target string) {
	ctx := context.Background()
	requests := must(postdate.NewRequests(name, int32(must(strconv.Atoi(partitions)))))
	client := must(kgo.NewClient(
		kgo.SeedBrokers(broker),
		kgo.RecordPartitioner(requests.Partitioner()),
		kgo.ConsumerGroup(target),
		kgo.ConsumeTopics(target, name+".verdicts"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	))
	defer client.Close()
	send := func(record *kgo.Record, err error) *kgo.Record {
		return must(client.ProduceSync(ctx, must(record, err)).First())
	}
	later := postdate.After(time.Hour)
	send(requests.Schedule(postdate.Message{Target: target, Value: []byte("by id"), When: later, ID: "go-1"}))
	sent := send(requests.Schedule(postdate.Message{Target: target, Value: []byte("by origin"), When: later}))
	send(requests.Schedule(postdate.Message{Target: target, Value: []byte("kept"), When: postdate.After(500 * time.Millisecond),
		ID: "go-2", Key: []byte("go")}))
	send(requests.Cancel(postdate.ByID("go-1")))
	send(requests.Cancel(postdate.ByOrigin(fmt.Sprintf("%s/%d/%d", name, sent.Partition, sent.Offset))))
	send(requests.Repeat(postdate.Recurring{Target: target, Value: []byte("tick"), Key: []byte("go"), ID: "go-3",
		Every: time.Second, Count: 2}))
	for read := 0; read < 6; {
		fetches := client.PollFetches(ctx)
		must(0, fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Topic == target {
				got := must(postdate.ReadDelivered(record.Headers))
				fmt.Printf("%s %s %s %d %q %d %t\n", record.Value, got.ID, record.Key, got.Attempt, got.Error, got.Occurrence,
					!got.Next.IsZero())
				if got.Attempt == 0 && got.Occurrence == 0 {
					send(requests.Retry(record, "base=100ms, attempts=1", "busy"))
				}
			} else {
				answer := must(postdate.ReadVerdict(record.Value))
				fmt.Println(answer.Verdict, optional(answer.ID, answer.ID))
			}
			read++
		})
	}
}

func main() {
	if os.Args[1] == "live" {
		live(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	} else {
		conform(os.Args[2])
	}
}
