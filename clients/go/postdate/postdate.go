// Package postdate builds requests to Postdate for franz-go, and reads delivered records and verdicts.
//
//	requests, err := postdate.NewRequests("postdate.requests", partitions)
//	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.RecordPartitioner(requests.Partitioner()))
//	record, err := requests.Schedule(postdate.Message{
//		Target: "reminders", Value: value, When: postdate.After(2 * time.Hour), ID: "order-9"})
//	client.ProduceSync(ctx, record)
//	record, err = requests.Cancel(postdate.ByID("order-9"))
//	record, err = requests.Repeat(postdate.Recurring{
//		Target: "reports", Value: value, ID: "nightly", Cron: "30 2 * * *", Zone: "Europe/Berlin"})
//
// Use the partitioner of Requests: franz-go's own ignores the partition that a record names, and a cancel by origin
// needs it. Nothing here opens a connection. All functions are safe for concurrent use.
package postdate

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // Zone is checked on machines without a time zone database, too
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	prefix              = "postdate-"
	dayMs               = 24 * 3600 * 1000
	horizonMs           = 400 * dayMs
	windowMsMax         = 1<<39 - 1
	everyMsMin          = 1000
	everyMsMax          = 36_525 * dayMs
	nominalMsEnd        = 253_339_228_800_000 // the year 9998
	idBytesMax          = 256
	selectedKeyBytesMax = 4096
	policyBytesMax      = 256
	cronBytesMax        = 512
	verdictBytesMax     = 8 * 1024
	roundingError       = 1 - 1e-12 // so that 1.1h, which no float64 is, rounds up to no more than 3960000 ms
)

var (
	topicName  = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	originText = regexp.MustCompile(`^([^/]+)/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})$`)
	digits     = regexp.MustCompile(`^[0-9]{1,19}$`)
	policyName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	factorText = regexp.MustCompile(`^[0-9]{1,3}(\.[0-9]{1,2})?$`)
	attemptsOf = regexp.MustCompile(`^[0-9]{1,4}$`)
	percentage = regexp.MustCompile(`^[0-9]{1,3}%$`)
	lengthText = regexp.MustCompile(`^([0-9.]+d)?([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?$`)
	isoLength  = regexp.MustCompile(`^P([0-9.]+D)?(?:T([0-9.]+H)?([0-9.]+M)?([0-9.]+S)?)?$`)
	isoWeeks   = regexp.MustCompile(`^P([0-9.]+W)$`)
	component  = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	macro      = regexp.MustCompile(`^@(HOURLY|DAILY|MIDNIGHT|WEEKLY|MONTHLY|YEARLY|ANNUALLY)$`)
)

// RequestInvalid is the error of a request that Postdate would refuse. Correct the call; nothing was built.
type RequestInvalid struct {
	Reason string // the reason that the dead letter would have
	Detail string
}

func (e *RequestInvalid) Error() string { return e.Reason + ": " + e.Detail }

// FormatError is the error of a record that Postdate, in a version known to this package, did not write.
type FormatError struct{ Detail string }

func (e *FormatError) Error() string { return e.Detail }

func invalid(reason, format string, arguments ...any) error {
	return &RequestInvalid{reason, fmt.Sprintf(format, arguments...)}
}

func malformed(format string, arguments ...any) error {
	return &FormatError{fmt.Sprintf(format, arguments...)}
}

// Requests is one request topic. NewRequests makes it.
type Requests struct {
	name       string
	partitions int32
}

// NewRequests describes the request topic with this name and number of partitions. The number must be that of the live
// topic: read it from the cluster.
func NewRequests(name string, partitions int32) (*Requests, error) {
	if !isTopic(name) || partitions < 1 {
		return nil, fmt.Errorf("a request topic needs the name of a Kafka topic and its partitions, 1 or more; got %q and %d",
			name, partitions)
	}
	return &Requests{name, partitions}, nil
}

// When is the time at which a message is due: At, After or Level makes it.
type When struct {
	header string
	number int64
	err    error
}

// At names an instant. A rest of a millisecond rounds up.
func At(at time.Time) When {
	if at.Before(time.UnixMilli(0)) {
		return When{err: invalid("bad-time", "%s lies before 1970", at)}
	}
	milliseconds := at.UnixMilli()
	if at.After(time.UnixMilli(milliseconds)) {
		milliseconds++
	}
	return When{header: "postdate-at", number: milliseconds}
}

// After names the time this long after the timestamp of the request. A rest of a millisecond rounds up.
func After(delay time.Duration) When {
	milliseconds, err := ceilMs("delay", delay)
	return When{"postdate-delay", milliseconds, err}
}

// Level names the time by a delay level; 0 is immediately.
func Level(level int) When {
	if level < 0 {
		return When{err: invalid("bad-level", "level %d is negative: give 0 to 18", level)}
	}
	return When{header: "postdate-level", number: int64(level)}
}

// delayMs returns how far from now the time is; 0 for a level, whose length the sidecar knows.
func (w When) delayMs() int64 {
	switch w.header {
	case "postdate-at":
		return w.number - time.Now().UnixMilli()
	case "postdate-delay":
		return w.number
	}
	return 0
}

func (w When) appendTo(headers []kgo.RecordHeader) ([]kgo.RecordHeader, error) {
	if w.err != nil {
		return nil, w.err
	}
	if w.header == "" {
		return nil, invalid("missing-time", "give At, After or Level")
	}
	if w.delayMs() > horizonMs {
		return nil, invalid("beyond-horizon", "due later than 400 days from now: give an earlier time")
	}
	return append(headers, header(w.header, strconv.FormatInt(w.number, 10))), nil
}

// Named is the request on which a control acts: ByID or ByOrigin makes it.
type Named struct{ header, text string }

// ByID names the pending message with this id.
func ByID(id string) Named { return Named{"postdate-id", id} }

// ByOrigin names the pending message of the request with this origin, topic/partition/offset.
func ByOrigin(origin string) Named { return Named{"postdate-origin", origin} }

// Message is a message to schedule. Target and When are required.
type Message struct {
	Target  string
	Value   []byte
	Key     []byte             // with which the message arrives
	Headers []kgo.RecordHeader // of the message; of a delivered record, what Postdate added is left out
	When    When
	// ID is your name for the message while it is pending. Scheduling it again replaces the message.
	ID string
	// Grace is how late the message may be; later, it becomes a dead letter. 0: no bound.
	Grace time.Duration
	// TargetPartition is the partition of the target. nil: by the key.
	TargetPartition *int32
	// Window is the time after the due time within which the message leaves. 0: none.
	Window time.Duration
	// SpreadEvenly chooses the emptiest moment of the window that the sidecar knows.
	SpreadEvenly bool
	// IfPending decides between this message and the pending one of its ID. "": Replace.
	IfPending IfPending
	// DropIfEnded ends the request if a message of its ID, requested with DropIfEnded too, was delivered lately.
	DropIfEnded bool
	// Latest bounds the due time of messages that replace one another: this long after the first request. 0: no bound.
	Latest time.Duration
}

// IfPending decides which message stays if one of its ID is pending.
type IfPending string

// The policies for a pending message.
const (
	Replace IfPending = "replace"
	Keep    IfPending = "keep"
)

// Schedule returns the record that schedules the message. The error is a *RequestInvalid.
func (r *Requests) Schedule(message Message) (*kgo.Record, error) {
	headers, err := messageHeaders(message.Headers)
	if err != nil {
		return nil, err
	}
	if err := r.checkTarget(message.Target); err != nil {
		return nil, err
	}
	headers, err = message.When.appendTo(append(headers, header("postdate-topic", message.Target)))
	if err != nil {
		return nil, err
	}
	if headers, err = appendGrace(headers, message.Grace); err != nil {
		return nil, err
	}
	if headers, err = message.appendPolicies(headers); err != nil {
		return nil, err
	}
	if headers, err = appendPartition(headers, message.TargetPartition); err != nil {
		return nil, err
	}
	if message.ID == "" {
		return r.record(r.partitionOfKey(message.Key), message.Key, message.Value, headers), nil
	}
	return r.named(message.ID, message.Key, message.Value, headers)
}

func (m Message) appendPolicies(headers []kgo.RecordHeader) ([]kgo.RecordHeader, error) {
	windowMs, err := appendLength(&headers, "postdate-window", m.Window, windowMsMax, "bad-window")
	if err != nil {
		return nil, err
	}
	if windowMs+m.When.delayMs() > horizonMs {
		return nil, invalid("beyond-horizon", "due, with its window, later than 400 days from now: give an earlier time")
	}
	if m.SpreadEvenly {
		if windowMs == 0 {
			return nil, invalid("bad-spread", "SpreadEvenly needs a Window")
		}
		headers = append(headers, header("postdate-spread", "even"))
	}
	if m.ID == "" && (m.IfPending != "" || m.DropIfEnded || m.Latest != 0) {
		return nil, invalid("missing-id", "IfPending, DropIfEnded and Latest need an ID")
	}
	switch m.IfPending {
	case Replace, Keep:
		headers = append(headers, header("postdate-if-pending", string(m.IfPending)))
	case "":
	default:
		return nil, invalid("bad-if-pending", "IfPending is Replace or Keep")
	}
	if m.DropIfEnded {
		headers = append(headers, header("postdate-if-ended", "drop"))
	}
	if m.IfPending == Keep && m.Latest != 0 {
		return nil, invalid("bad-latest", "Keep replaces nothing: leave Latest out")
	}
	_, err = appendLength(&headers, "postdate-latest", m.Latest, windowMsMax, "bad-latest")
	return headers, err
}

// Recurring is a message that is delivered again and again, by Cron or Every. Target and ID are required. The members of
// Postdate need format_version = 3; docs/calendar.md has the rules.
type Recurring struct {
	Target  string
	Value   []byte
	Key     []byte             // with which each occurrence arrives
	Headers []kgo.RecordHeader // of the message; of a delivered record, what Postdate added is left out
	// ID names the schedule. The same ID replaces it, and Cancel ends it.
	ID string
	// Cron is an expression of 5 fields, or 6 with seconds first, or one such as @daily.
	Cron string
	Zone string // of Cron, an IANA name; "": UTC
	Gap  Gap    // of Cron; "": GapNext
	Fold Fold   // of Cron; "": FoldFirst
	// Every is the interval: occurrences are at its multiples since 1970, plus Phase.
	Every, Phase time.Duration
	// Start and End are the first and the last instant that may be a nominal time. The zero Start: after the request.
	Start, End time.Time
	Count      int64  // the number of the last occurrence; 0: no bound
	Missed     Missed // "": MissedAll
	// CatchUp and Grace skip occurrences that are later than this. 0: no bound.
	CatchUp, Grace time.Duration
	// Window is the time after each nominal time within which the occurrence leaves. 0: none.
	Window time.Duration
	// TargetPartition is the partition of the target. nil: by the key.
	TargetPartition *int32
}

// Gap decides what happens to times that do not exist, because clocks are set forward.
type Gap string

// Fold decides which of the times that exist twice, because clocks are set back, are occurrences.
type Fold string

// Missed decides which late occurrences are delivered.
type Missed string

// The values of Gap, Fold and Missed.
const (
	GapNext    Gap    = "next" // once, at the first instant after the gap
	GapSkip    Gap    = "skip"
	FoldFirst  Fold   = "first"
	FoldLast   Fold   = "last"
	FoldBoth   Fold   = "both"
	MissedAll  Missed = "all"
	MissedLast Missed = "last" // the newest
	MissedNone Missed = "none" // those that are at most 60 s late
)

// Repeat returns the record that schedules a recurring message. The error is a *RequestInvalid. It cannot know whether the
// expression has a date at all: the sidecar refuses 30 February.
func (r *Requests) Repeat(recurring Recurring) (*kgo.Record, error) {
	headers, err := messageHeaders(recurring.Headers)
	if err != nil {
		return nil, err
	}
	if err := r.checkTarget(recurring.Target); err != nil {
		return nil, err
	}
	headers = append(headers, header("postdate-topic", recurring.Target))
	if headers, err = recurring.appendTimes(headers); err != nil {
		return nil, err
	}
	if headers, err = recurring.appendBounds(headers); err != nil {
		return nil, err
	}
	if _, err := appendLength(&headers, "postdate-catch-up", recurring.CatchUp, math.MaxInt64, ""); err != nil {
		return nil, err
	}
	if _, err := appendLength(&headers, "postdate-window", recurring.Window, windowMsMax, "bad-schedule"); err != nil {
		return nil, err
	}
	if _, err := appendLength(&headers, "postdate-grace", recurring.Grace, math.MaxInt64, ""); err != nil {
		return nil, err
	}
	if headers, err = appendPartition(headers, recurring.TargetPartition); err != nil {
		return nil, err
	}
	return r.named(recurring.ID, recurring.Key, recurring.Value, headers)
}

func (r Recurring) appendTimes(headers []kgo.RecordHeader) ([]kgo.RecordHeader, error) {
	if (r.Cron == "") == (r.Every == 0) {
		return nil, invalid("bad-schedule", "give one of Cron and Every")
	}
	if r.Cron == "" {
		if r.Zone != "" || r.Gap != "" || r.Fold != "" {
			return nil, invalid("bad-schedule", "Every takes no Zone, Gap and Fold: for times of a zone use Cron")
		}
		everyMs, err := ceilMs("Every", r.Every)
		if err != nil {
			return nil, err
		}
		phaseMs, err := ceilMs("Phase", r.Phase)
		if err != nil {
			return nil, err
		}
		if everyMs < everyMsMin || everyMs > everyMsMax || phaseMs >= everyMs {
			return nil, invalid("bad-schedule", "Every is from 1 s to 36525 days, and Phase is shorter")
		}
		text := strconv.FormatInt(everyMs, 10)
		if phaseMs > 0 {
			text += "/" + strconv.FormatInt(phaseMs, 10)
		}
		return append(headers, header("postdate-every", text)), nil
	}
	if r.Phase != 0 {
		return nil, invalid("bad-schedule", "Phase belongs to Every: leave it out")
	}
	if err := checkCron(r.Cron); err != nil {
		return nil, err
	}
	headers = append(headers, header("postdate-cron", r.Cron))
	if r.Zone != "" {
		if _, err := time.LoadLocation(r.Zone); err != nil || r.Zone == "Local" {
			return nil, invalid("bad-schedule", "%q is not a time zone: give an IANA name such as Europe/Berlin", r.Zone)
		}
		headers = append(headers, header("postdate-zone", r.Zone))
	}
	headers, err := appendChoice(headers, "postdate-gap", string(r.Gap), "next", "skip")
	if err != nil {
		return nil, err
	}
	return appendChoice(headers, "postdate-fold", string(r.Fold), "first", "last", "both")
}

func (r Recurring) appendBounds(headers []kgo.RecordHeader) ([]kgo.RecordHeader, error) {
	headers, err := appendChoice(headers, "postdate-missed", string(r.Missed), "all", "last", "none")
	if err != nil {
		return nil, err
	}
	if !r.End.IsZero() && (r.End.Before(r.Start) || r.Start.IsZero() && r.End.Before(time.Now())) {
		return nil, invalid("bad-schedule", "End lies before Start, or in the past: give a later one")
	}
	for _, each := range []struct {
		name string
		at   time.Time
	}{{"postdate-start", r.Start}, {"postdate-end", r.End}} {
		if each.at.IsZero() {
			continue
		}
		when := At(each.at)
		if when.err != nil {
			return nil, when.err
		}
		if when.number >= nominalMsEnd {
			return nil, invalid("bad-schedule", "%s lies after the year 9997: give an earlier one, or leave it out", each.name)
		}
		headers = append(headers, header(each.name, strconv.FormatInt(when.number, 10)))
	}
	if r.Count < 0 {
		return nil, invalid("bad-schedule", "Count is %d: give 1 or more, or leave it out", r.Count)
	}
	if r.Count > 0 {
		headers = append(headers, header("postdate-count", strconv.FormatInt(r.Count, 10)))
	}
	return headers, nil
}

// Cancel returns the record that ends a pending message. Its verdict shows whether it was in time. The error is a
// *RequestInvalid.
func (r *Requests) Cancel(named Named) (*kgo.Record, error) {
	return r.control(named, []kgo.RecordHeader{header("postdate-action", "cancel")})
}

// Pause returns the record that pauses a recurring schedule: its nominal times from the timestamp of the record until
// the timestamp of a Resume record are skipped. The error is a *RequestInvalid.
func (r *Requests) Pause(named Named) (*kgo.Record, error) {
	return r.control(named, []kgo.RecordHeader{header("postdate-action", "pause")})
}

// Resume returns the record that ends a pause: nominal times from its timestamp on are delivered again. The error is a
// *RequestInvalid.
func (r *Requests) Resume(named Named) (*kgo.Record, error) {
	return r.control(named, []kgo.RecordHeader{header("postdate-action", "resume")})
}

// Trigger returns the record that delivers a recurring schedule once more, at the timestamp of the record. That consumes
// no occurrence number. The error is a *RequestInvalid.
func (r *Requests) Trigger(named Named) (*kgo.Record, error) {
	return r.control(named, []kgo.RecordHeader{header("postdate-action", "trigger")})
}

// Backfill returns the record that delivers a recurring schedule once more for each of its nominal times from start to end,
// both included, which have passed. That consumes no occurrence number. The error is a *RequestInvalid.
func (r *Requests) Backfill(named Named, start, end time.Time) (*kgo.Record, error) {
	headers := []kgo.RecordHeader{header("postdate-action", "backfill")}
	for i, each := range []When{At(start), At(end)} {
		if each.err != nil {
			return nil, each.err
		}
		headers = append(headers, header([]string{"postdate-start", "postdate-end"}[i], strconv.FormatInt(each.number, 10)))
	}
	if end.Before(start) || end.After(time.Now()) {
		return nil, invalid("bad-time", "the end lies before the start, or in the future: give an earlier range")
	}
	return r.control(named, headers)
}

// Reschedule returns the record that moves a pending message to another time; its content does not change. grace is how
// late it may be, 0: no bound. The error is a *RequestInvalid.
func (r *Requests) Reschedule(named Named, when When, grace time.Duration) (*kgo.Record, error) {
	headers, err := when.appendTo([]kgo.RecordHeader{header("postdate-action", "reschedule")})
	if err != nil {
		return nil, err
	}
	if headers, err = appendGrace(headers, grace); err != nil {
		return nil, err
	}
	return r.control(named, headers)
}

// Deliver returns the record that delivers a pending message now: a reschedule without delay. The error is a
// *RequestInvalid.
func (r *Requests) Deliver(named Named) (*kgo.Record, error) {
	return r.Reschedule(named, After(0), 0)
}

// Selection is the set of pending messages on which a bulk control acts: those that match all given fields, at least one.
type Selection struct {
	Target   string // "": any
	IDPrefix string // with which the ID begins; "": any, also none
	Key      []byte // of the target; nil: any
	// From and Until select due times, as requested, at or after the first and before the second. Zero: no bound.
	From, Until time.Time
}

// CancelSelected returns the records, one for each partition, that end every selected message. Produce all of them. The
// verdict of each, Applied, has the number of messages. The error is a *RequestInvalid.
func (r *Requests) CancelSelected(selection Selection) ([]*kgo.Record, error) {
	return r.bulk(selection, header("postdate-action", "cancel"))
}

// RescheduleSelected returns the records, one for each partition, that move every selected message by a time, which may be
// negative. Produce each of them once: a second control moves the same messages again. The error is a *RequestInvalid.
func (r *Requests) RescheduleSelected(selection Selection, by time.Duration) ([]*kgo.Record, error) {
	milliseconds, err := ceilMs("by", by.Abs())
	if err != nil {
		return nil, err
	}
	if milliseconds == 0 {
		return nil, invalid("bad-time", "a move by 0 moves nothing: give another time")
	}
	if milliseconds > horizonMs {
		return nil, invalid("beyond-horizon", "a move is at most 400 days: give a shorter one")
	}
	if by < 0 {
		milliseconds = -milliseconds
	}
	return r.bulk(selection, header("postdate-action", "reschedule"),
		header("postdate-by", strconv.FormatInt(milliseconds, 10)))
}

// DeliverSelected returns the records, one for each partition, that deliver every selected message now. The error is a
// *RequestInvalid.
func (r *Requests) DeliverSelected(selection Selection) ([]*kgo.Record, error) {
	return r.bulk(selection, header("postdate-action", "reschedule"), header("postdate-delay", "0"))
}

func (r *Requests) bulk(selection Selection, headers ...kgo.RecordHeader) ([]*kgo.Record, error) {
	own := len(headers)
	if selection.Target != "" {
		if !isTopic(selection.Target) {
			return nil, invalid("bad-selection", "Target is not the name of a Kafka topic: use letters, digits, . _ -")
		}
		headers = append(headers, header("postdate-select-topic", selection.Target))
	}
	if selection.IDPrefix != "" {
		if checkID(selection.IDPrefix) != nil {
			return nil, invalid("bad-selection", "IDPrefix has more than %d bytes, or is not UTF-8", idBytesMax)
		}
		headers = append(headers, header("postdate-select-id", selection.IDPrefix))
	}
	if selection.Key != nil {
		if len(selection.Key) > selectedKeyBytesMax {
			return nil, invalid("bad-selection", "Key has more than %d bytes: select by something else", selectedKeyBytesMax)
		}
		headers = append(headers, kgo.RecordHeader{Key: "postdate-select-key", Value: selection.Key})
	}
	bounds := []int64{0, math.MaxInt64}
	for i, at := range []time.Time{selection.From, selection.Until} {
		if at.IsZero() {
			continue
		}
		when := At(at)
		if when.err != nil {
			return nil, when.err
		}
		bounds[i] = when.number
		headers = append(headers, header([]string{"postdate-select-from", "postdate-select-until"}[i],
			strconv.FormatInt(when.number, 10)))
	}
	if len(headers) == own || bounds[0] >= bounds[1] {
		return nil, invalid("bad-selection", "give at least one selector, and From before Until")
	}
	records := make([]*kgo.Record, r.partitions)
	for i := range records {
		records[i] = r.record(int32(i), nil, nil, append([]kgo.RecordHeader(nil), headers...))
	}
	return records, nil
}

// Retry returns the record by which a consumer returns a message, to be delivered again to its topic later. consumed
// is as the consumer got it, with all its headers. policy is a text (base=1s, attempts=5) or the name of a policy of the
// request topic. reason is for the next consumer, "" for none. The error is a *RequestInvalid.
func (r *Requests) Retry(consumed *kgo.Record, policy, reason string) (*kgo.Record, error) {
	if err := checkPolicy(policy); err != nil {
		return nil, err
	}
	var headers []kgo.RecordHeader
	for _, each := range consumed.Headers {
		if !isOurs(each.Key) || isCounted(each.Key) {
			headers = append(headers, each)
		} else if !isAdded(each.Key) {
			return nil, reserved(each.Key)
		}
	}
	if err := r.checkTarget(consumed.Topic); err != nil {
		return nil, err
	}
	headers = append(headers, header("postdate-topic", consumed.Topic), header("postdate-retry", policy))
	if reason != "" {
		headers = append(headers, header("postdate-error", reason))
	}
	return r.record(r.partitionOfKey(consumed.Key), consumed.Key, consumed.Value, headers), nil
}

// PartitionOf returns the one partition of all requests that name this id.
func (r *Requests) PartitionOf(id string) int32 { return PartitionFor([]byte(id), r.partitions) }

// PartitionFor returns the partition that the default partitioner of Kafka's Java client chooses for a key.
func PartitionFor(key []byte, partitions int32) int32 {
	return int32(murmur2(key)&math.MaxInt32) % partitions
}

// Partitioner returns the partitioner for clients that produce requests: each goes to the partition in its record. A
// record of another topic goes where franz-go's default partitioner puts it.
func (r *Requests) Partitioner() kgo.Partitioner {
	return partitioner{r.name, kgo.StickyKeyPartitioner(nil)}
}

type partitioner struct {
	requests string
	others   kgo.Partitioner
}

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	others := p.others.ForTopic(topic)
	if topic == p.requests {
		return chosen{others}
	}
	return others
}

// chosen takes the partition of the record, and has any chosen for a record with a negative one.
type chosen struct{ any kgo.TopicPartitioner }

func (c chosen) RequiresConsistency(record *kgo.Record) bool {
	return record.Partition >= 0 || c.any.RequiresConsistency(record)
}

func (c chosen) Partition(record *kgo.Record, partitions int) int {
	if record.Partition >= 0 {
		return int(record.Partition)
	}
	return c.any.Partition(record, partitions)
}

func (c chosen) OnNewBatch() {
	if any, ok := c.any.(kgo.TopicPartitionerOnNewBatch); ok {
		any.OnNewBatch()
	}
}

func (r *Requests) control(named Named, headers []kgo.RecordHeader) (*kgo.Record, error) {
	switch named.header {
	case "postdate-id":
		if err := checkID(named.text); err != nil {
			return nil, err
		}
		headers = append(headers, header("postdate-id", named.text))
		return r.record(r.PartitionOf(named.text), []byte(named.text), nil, headers), nil
	case "postdate-origin":
		origin, err := ParseOrigin(named.text)
		if err != nil {
			return nil, invalid("bad-id", "%s", err)
		}
		if origin.Topic != r.name || origin.Partition >= r.partitions {
			return nil, invalid("bad-id",
				"the origin names partition %d of %s, and %s was given as having %d: ask the cluster for their number",
				origin.Partition, origin.Topic, r.name, r.partitions)
		}
		headers = append(headers, header("postdate-origin", named.text))
		return r.record(origin.Partition, nil, nil, headers), nil
	}
	return nil, invalid("missing-id", "give ByID or ByOrigin")
}

func (r *Requests) named(id string, key, value []byte, headers []kgo.RecordHeader) (*kgo.Record, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	headers = append(headers, header("postdate-id", id), kgo.RecordHeader{Key: "postdate-key", Value: key})
	return r.record(r.PartitionOf(id), []byte(id), value, headers), nil
}

func (r *Requests) record(partition int32, key, value []byte, headers []kgo.RecordHeader) *kgo.Record {
	return &kgo.Record{Topic: r.name, Partition: partition, Key: key, Value: value, Headers: headers}
}

func (r *Requests) partitionOfKey(key []byte) int32 {
	if key == nil {
		return -1
	}
	return PartitionFor(key, r.partitions)
}

func (r *Requests) checkTarget(target string) error {
	if !isTopic(target) {
		return invalid("bad-target", "the target is not the name of a Kafka topic: use letters, digits, . _ -")
	}
	forbidden := strings.HasPrefix(target, "__") || target == r.name
	for _, suffix := range []string{".dispatch-log", ".store", ".dead-letters", ".verdicts"} {
		forbidden = forbidden || target == r.name+suffix
	}
	if forbidden {
		return invalid("forbidden-target", "%s can never be a target: name a topic of yours", target)
	}
	return nil
}

func messageHeaders(headers []kgo.RecordHeader) ([]kgo.RecordHeader, error) {
	isDelivered := false
	for _, each := range headers {
		isDelivered = isDelivered || each.Key == "postdate-origin"
	}
	var kept []kgo.RecordHeader
	for _, each := range headers {
		if !isOurs(each.Key) {
			kept = append(kept, each)
		} else if !isAdded(each.Key) || each.Key == "postdate-id" && !isDelivered {
			return nil, reserved(each.Key)
		}
	}
	return kept, nil
}

func reserved(name string) error {
	return invalid("unknown-header", "header %s is Postdate's: set it with an argument", name)
}

func isOurs(name string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// isCounted reports whether the attempts of a return count from this header.
func isCounted(name string) bool {
	switch name {
	case "postdate-origin", "postdate-due", "postdate-id", "postdate-attempt", "postdate-first-origin", "postdate-first-due":
		return true
	}
	return false
}

func isAdded(name string) bool {
	switch name {
	case "postdate-moved", "postdate-error", "postdate-occurrence", "postdate-next", "postdate-extra":
		return true
	}
	return isCounted(name) || strings.HasPrefix(name, "postdate-dead-")
}

func isTopic(name string) bool { return topicName.MatchString(name) && name != "." && name != ".." }

func isASCII(text string) bool {
	for _, character := range text {
		if character >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func checkID(id string) error {
	if len(id) < 1 || len(id) > idBytesMax || !utf8.ValidString(id) {
		return invalid("bad-id", "an id has 1 to %d bytes of UTF-8, this one %d bytes", idBytesMax, len(id))
	}
	return nil
}

func appendGrace(headers []kgo.RecordHeader, grace time.Duration) ([]kgo.RecordHeader, error) {
	_, err := appendLength(&headers, "postdate-grace", grace, math.MaxInt64, "")
	return headers, err
}

// appendLength appends the header unless the length is 0, and returns its milliseconds. A length above longestMs is
// refused for this reason.
func appendLength(
	headers *[]kgo.RecordHeader, name string, length time.Duration, longestMs int64, reason string,
) (int64, error) {
	milliseconds, err := ceilMs(name, length)
	if err != nil || milliseconds == 0 {
		return 0, err
	}
	if milliseconds > longestMs {
		return 0, invalid(reason, "%s %s is longer than 17 years: give a shorter one", name, length)
	}
	*headers = append(*headers, header(name, strconv.FormatInt(milliseconds, 10)))
	return milliseconds, nil
}

func appendPartition(headers []kgo.RecordHeader, partition *int32) ([]kgo.RecordHeader, error) {
	if partition == nil {
		return headers, nil
	}
	if *partition < 0 {
		return nil, invalid("bad-partition", "partition %d is negative", *partition)
	}
	return append(headers, header("postdate-partition", strconv.Itoa(int(*partition)))), nil
}

// appendChoice appends the header unless the value is "".
func appendChoice(headers []kgo.RecordHeader, name, value string, known ...string) ([]kgo.RecordHeader, error) {
	if value == "" {
		return headers, nil
	}
	for _, each := range known {
		if value == each {
			return append(headers, header(name, value)), nil
		}
	}
	return nil, invalid("bad-schedule", "%s %q is not one of %s", name, value, strings.Join(known, ", "))
}

// cronField is a field of a cron expression. special matches the terms that only this field has.
type cronField struct {
	name      string
	low, high int
	names     []string
	special   *regexp.Regexp
}

var cronFields = []cronField{
	{"second", 0, 59, nil, nil},
	{"minute", 0, 59, nil, nil},
	{"hour", 0, 23, nil, nil},
	{"day of month", 1, 31, nil, regexp.MustCompile(`^LW?$`)},
	{"month", 1, 12, strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"), nil},
	{"day of week", 0, 7, strings.Fields("SUN MON TUE WED THU FRI SAT"),
		regexp.MustCompile(`^([0-7]L|([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5])$`)},
}

var cronTerm = regexp.MustCompile(`^(?:\*|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:/([0-9]{1,2}))?$`)

func checkCron(text string) error {
	upper := strings.ToUpper(text)
	fields := strings.Split(upper, " ")
	if len(text) > cronBytesMax || !isASCII(text) || len(fields) != 5 && len(fields) != 6 {
		if macro.MatchString(upper) {
			return nil
		}
		return invalid("bad-schedule", "a cron expression has 5 fields, or 6 with seconds first, separated by single "+
			"spaces, such as 30 9 * * MON-FRI; @hourly, @daily, @weekly, @monthly and @yearly are others")
	}
	for i, text := range fields {
		field := cronFields[i+6-len(fields)]
		for _, term := range strings.Split(text, ",") {
			if field.special != nil && field.special.MatchString(term) {
				continue
			}
			match := cronTerm.FindStringSubmatch(term)
			valid := match != nil
			if valid {
				low := field.value(match[1], field.low)
				high := field.value(match[2], low)
				step := 1
				if match[3] != "" {
					step, _ = strconv.Atoi(match[3])
				}
				valid = field.low <= low && low <= high && high <= field.high && 0 < step && step <= field.high
			}
			if !valid {
				return invalid("bad-schedule", "cron expression: %q is no %s: give *, %d to %d, an ascending range such as %d-%d, "+
					"or a step such as */2", term, field.name, field.low, field.high, field.low, field.high)
			}
		}
	}
	return nil
}

// value returns the number of a value or of a name, absent for "", and -1 for any other text.
func (f cronField) value(text string, absent int) int {
	if text == "" {
		return absent
	}
	for i, name := range f.names {
		if text == name {
			return i + f.low
		}
	}
	number, err := strconv.Atoi(text)
	if err != nil || f.high < 10 && len(text) > 1 { // weekdays have one digit
		return -1
	}
	return number
}

func checkPolicy(policy string) error {
	why := fmt.Sprintf("give a policy such as base=1s, factor=2, max=1h, attempts=12, jitter=20%%, or the name of one, "+
		"of at most %d ASCII characters", policyBytesMax)
	if len(policy) > policyBytesMax || !isASCII(policy) {
		return invalid("bad-retry", "%s", why)
	}
	if !strings.Contains(policy, "=") {
		if !policyName.MatchString(strings.Trim(policy, " ")) {
			return invalid("bad-retry", "%s", why)
		}
		return nil
	}
	lengths := map[string]float64{"max": 3_600_000}
	seen := map[string]bool{}
	for _, part := range strings.Split(policy, ",") {
		name, value, _ := strings.Cut(part, "=")
		name, value = strings.Trim(name, " "), strings.Trim(value, " ")
		valid := !seen[name]
		seen[name] = true
		switch name {
		case "base", "max":
			lengths[name] = lengthMs(value)
			valid = valid && lengths[name] >= 0
		case "factor":
			factor, _ := strconv.ParseFloat(value, 64)
			valid = valid && factorText.MatchString(value) && factor >= 1 && factor <= 100
		case "attempts":
			attempts, _ := strconv.Atoi(value)
			valid = valid && attemptsOf.MatchString(value) && attempts >= 1 && attempts <= 1000
		case "jitter":
			percent, _ := strconv.Atoi(strings.TrimSuffix(value, "%"))
			valid = valid && percentage.MatchString(value) && percent <= 100
		default:
			valid = false
		}
		if !valid {
			return invalid("bad-retry", "%q is no part of a policy, or is repeated: %s", strings.Trim(part, " "), why)
		}
	}
	if base := lengths["base"]; base <= 0 || base > lengths["max"] || lengths["max"] > horizonMs {
		return invalid("bad-retry", "base is at least 1ms and at most max, which is 1h unless given, at most 400d: %s", why)
	}
	return nil
}

// lengthMs returns the milliseconds of a duration such as 1500, 90s, 2h30m or PT5M; -1: it is none.
func lengthMs(text string) float64 {
	if digits.MatchString(text) {
		number, _ := strconv.ParseFloat(text, 64)
		return number
	}
	var parts []string
	for _, form := range []*regexp.Regexp{lengthText, isoLength, isoWeeks} {
		if match := form.FindStringSubmatch(text); match != nil && !strings.HasSuffix(text, "T") {
			parts = match[1:]
			break
		}
	}
	units := map[string]float64{"w": 7 * dayMs, "d": dayMs, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
	sum, isFraction, found := 0.0, false, false
	for _, part := range parts {
		if part == "" {
			continue
		}
		number := strings.TrimRight(part, "dhmsDHMSW")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil || isFraction || !component.MatchString(number) {
			return -1
		}
		found, isFraction = true, strings.Contains(number, ".")
		sum += value * units[strings.ToLower(part[len(number):])]
	}
	if !found {
		return -1
	}
	return math.Ceil(sum * roundingError)
}

func ceilMs(name string, length time.Duration) (int64, error) {
	if length < 0 {
		return 0, invalid("bad-time", "%s %s is negative", name, length)
	}
	milliseconds := length.Milliseconds()
	if length%time.Millisecond != 0 {
		milliseconds++
	}
	return milliseconds, nil
}

func header(name, text string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: []byte(text)}
}

func murmur2(key []byte) uint32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k = (k ^ k>>24) * m
		h = h*m ^ k
	}
	if len(key) > 0 {
		for i, each := range key {
			h ^= uint32(each) << (8 * i)
		}
		h *= m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// Origin is the name of a request.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String returns the text that headers and verdicts contain.
func (o Origin) String() string { return fmt.Sprintf("%s/%d/%d", o.Topic, o.Partition, o.Offset) }

// ParseOrigin returns the origin that a text names. The error is a *FormatError.
func ParseOrigin(text string) (Origin, error) {
	match := originText.FindStringSubmatch(text)
	if match == nil || !isTopic(match[1]) {
		return Origin{}, malformed("not an origin, which is <request topic>/<partition>/<offset>")
	}
	partition, tooHigh := strconv.ParseInt(match[2], 10, 32)
	offset, tooLarge := strconv.ParseInt(match[3], 10, 64)
	if tooHigh != nil || tooLarge != nil {
		return Origin{}, malformed("an origin names a partition or an offset that cannot exist")
	}
	return Origin{match[1], int32(partition), offset}, nil
}

// Delivered is what Postdate adds to a delivered record, and the headers of the message.
type Delivered struct {
	Origin Origin
	Due    time.Time
	ID     string // "": the request has none
	// Attempt is the number of the retry; 0: the message was not returned before, and the next three are empty.
	Attempt     int64
	FirstOrigin *Origin
	FirstDue    time.Time
	Error       string // the reason of the return; "": none was given
	// Occurrence is the number of the occurrence of a recurring schedule, from 1: with Origin, unique for ever. 0: none.
	Occurrence int64
	// Next is the nominal time of the next occurrence. Zero: this was the last one.
	Next time.Time
	// Extra is that of an extra delivery of a recurring schedule, which is no occurrence: the origin of the control that
	// asked for it, and the number of the delivery, unique for ever. "": none.
	Extra   string
	Headers []kgo.RecordHeader
}

// ReadDelivered reads the headers of a delivered record. The error is a *FormatError.
func ReadDelivered(headers []kgo.RecordHeader) (Delivered, error) {
	var read Delivered
	added := map[string]string{}
	for _, each := range headers {
		if isAdded(each.Key) {
			added[each.Key] = string(each.Value)
		} else {
			read.Headers = append(read.Headers, each)
		}
	}
	origin, err := ParseOrigin(added["postdate-origin"])
	if err != nil {
		return Delivered{}, malformed("postdate-origin: %s: Postdate did not deliver the record", err)
	}
	read.Origin, read.ID, read.Error = origin, added["postdate-id"], added["postdate-error"]
	due, err := natural("postdate-due", added["postdate-due"])
	if err != nil {
		return Delivered{}, err
	}
	read.Due = time.UnixMilli(due)
	for name, number := range map[string]*int64{
		"postdate-attempt": &read.Attempt, "postdate-occurrence": &read.Occurrence,
	} {
		if text, ok := added[name]; ok {
			if *number, err = natural(name, text); err != nil {
				return Delivered{}, err
			}
		}
	}
	for name, instant := range map[string]*time.Time{
		"postdate-first-due": &read.FirstDue, "postdate-next": &read.Next,
	} {
		if text, ok := added[name]; ok {
			milliseconds, err := natural(name, text)
			if err != nil {
				return Delivered{}, err
			}
			*instant = time.UnixMilli(milliseconds)
		}
	}
	if text, ok := added["postdate-first-origin"]; ok {
		first, err := ParseOrigin(text)
		if err != nil {
			return Delivered{}, err
		}
		read.FirstOrigin = &first
	}
	if text, ok := added["postdate-extra"]; ok {
		slash := max(strings.LastIndex(text, "/"), 0)
		if _, err := ParseOrigin(text[:slash]); err != nil {
			return Delivered{}, err
		}
		if _, err := natural("postdate-extra", strings.TrimPrefix(text[slash:], "/")); err != nil {
			return Delivered{}, err
		}
		read.Extra = text
	}
	return read, nil
}

func natural(name, text string) (int64, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !digits.MatchString(text) {
		return 0, malformed("%s is not a whole number of 0 or more", name)
	}
	return number, nil
}

// Verdict is the word of an answer.
type Verdict string

// The words that verdicts contain.
const (
	Accepted    Verdict = "accepted"
	Rejected    Verdict = "rejected"
	Cancelled   Verdict = "cancelled"
	Rescheduled Verdict = "rescheduled"
	Replaced    Verdict = "replaced"
	WasSent     Verdict = "delivered"
	Dead        Verdict = "dead"
	NotFound    Verdict = "not-found"
	TooLate     Verdict = "too-late"
	Kept        Verdict = "kept"
	Dropped     Verdict = "dropped"
	Applied     Verdict = "applied"
	Paused      Verdict = "paused"
	Resumed     Verdict = "resumed"
	Triggered   Verdict = "triggered"
	Backfilled  Verdict = "backfilled"
)

// VerdictRecord is one verdict: the answer to the request Origin.
type VerdictRecord struct {
	Origin  Origin
	ID      string // that the request names; "": none
	Verdict Verdict
	Of      *Origin   // the request that was acted on, if there is one
	By      *Origin   // the request of the same id that survived this one, if there is one
	Count   int64     // of Applied: the number of messages on which a bulk control has acted
	At      time.Time // by the clock of the writer
}

// ReadVerdict returns the verdict in the value of a record on the verdicts topic. The error is a *FormatError.
func ReadVerdict(value []byte) (VerdictRecord, error) {
	fields := map[string]json.RawMessage{}
	if len(value) > verdictBytesMax || !utf8.Valid(value) || json.Unmarshal(value, &fields) != nil {
		return VerdictRecord{}, malformed("a verdict is a JSON object of at most %d bytes", verdictBytesMax)
	}
	version := string(fields["v"])
	if version != "1" && version != "2" && version != "3" {
		return VerdictRecord{}, malformed("a verdict has a version other than 1 to 3: use a newer client")
	}
	texts := map[string]string{}
	for _, field := range []string{"origin", "id", "verdict", "of", "by"} {
		var text *string
		if raw, ok := fields[field]; ok && json.Unmarshal(raw, &text) != nil {
			return VerdictRecord{}, malformed("a verdict has a field %s that is not a text", field)
		}
		if text != nil {
			texts[field] = *text
		}
	}
	answer := VerdictRecord{ID: texts["id"], Verdict: Verdict(texts["verdict"])}
	isSurvived, isApplied, expected := false, false, "1"
	switch answer.Verdict {
	case Accepted, Rejected, Cancelled, Rescheduled, Replaced, WasSent, Dead, NotFound, TooLate:
	case Kept, Dropped:
		isSurvived, expected = true, "2"
	case Applied:
		isApplied, expected = true, "2"
	case Paused, Resumed, Triggered, Backfilled:
		expected = "3"
	default:
		return VerdictRecord{}, malformed("a verdict has a word that this client does not know: use a newer client")
	}
	_, hasCount := fields["count"]
	if version != expected || isApplied != hasCount {
		return VerdictRecord{}, malformed("a verdict has the version or the count of another one")
	}
	at, err := natural("at", string(fields["at"]))
	if err != nil {
		return VerdictRecord{}, err
	}
	answer.At = time.UnixMilli(at)
	if hasCount {
		if answer.Count, err = natural("count", string(fields["count"])); err != nil {
			return VerdictRecord{}, err
		}
	}
	if answer.Origin, err = ParseOrigin(texts["origin"]); err != nil {
		return VerdictRecord{}, err
	}
	for field, named := range map[string]**Origin{"of": &answer.Of, "by": &answer.By} {
		if text, ok := texts[field]; ok {
			origin, err := ParseOrigin(text)
			if err != nil {
				return VerdictRecord{}, err
			}
			*named = &origin
		}
	}
	if isSurvived && answer.By == nil {
		return VerdictRecord{}, malformed("a verdict %s names no request that survived", answer.Verdict)
	}
	return answer, nil
}
