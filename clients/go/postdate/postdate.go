// Package postdate builds requests to Postdate for franz-go, and reads delivered records and verdicts.
//
//	requests, err := postdate.NewRequests("postdate.requests", partitions)
//	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.RecordPartitioner(requests.Partitioner()))
//	record, err := requests.Schedule(postdate.Message{
//		Target: "reminders", Value: value, When: postdate.After(2 * time.Hour), ID: "order-9"})
//	client.ProduceSync(ctx, record)
//	record, err = requests.Cancel(postdate.ByID("order-9"))
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
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	prefix          = "postdate-"
	horizonMs       = 400 * 24 * 3600 * 1000
	idBytesMax      = 256
	policyBytesMax  = 256
	verdictBytesMax = 8 * 1024
)

var (
	topicName  = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	originText = regexp.MustCompile(`^([^/]+)/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})$`)
	digits     = regexp.MustCompile(`^[0-9]{1,19}$`)
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
// topic: ask the cluster.
func NewRequests(name string, partitions int32) (*Requests, error) {
	if !isTopic(name) || partitions < 1 {
		return nil, fmt.Errorf("a request topic needs the name of a Kafka topic and its partitions, 1 or more; got %q and %d",
			name, partitions)
	}
	return &Requests{name, partitions}, nil
}

// When says when a message is due: At, After or Level makes it.
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

func (w When) appendTo(headers []kgo.RecordHeader) ([]kgo.RecordHeader, error) {
	delayMs := int64(0)
	switch w.header {
	case "postdate-at":
		delayMs = w.number - time.Now().UnixMilli()
	case "postdate-delay":
		delayMs = w.number
	case "":
		if w.err == nil {
			return nil, invalid("missing-time", "give At, After or Level")
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	if delayMs > horizonMs {
		return nil, invalid("beyond-horizon", "due later than 400 days from now: give an earlier time")
	}
	return append(headers, header(w.header, strconv.FormatInt(w.number, 10))), nil
}

// Named says what a control acts on: ByID or ByOrigin makes it.
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
}

// Schedule returns the record that asks for the message. The error is a *RequestInvalid.
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
	if message.TargetPartition != nil {
		if *message.TargetPartition < 0 {
			return nil, invalid("bad-partition", "partition %d is negative", *message.TargetPartition)
		}
		headers = append(headers, header("postdate-partition", strconv.Itoa(int(*message.TargetPartition))))
	}
	if message.ID == "" {
		return r.record(r.partitionOfKey(message.Key), message.Key, message.Value, headers), nil
	}
	if err := checkID(message.ID); err != nil {
		return nil, err
	}
	headers = append(headers, header("postdate-id", message.ID), kgo.RecordHeader{Key: "postdate-key", Value: message.Key})
	return r.record(r.PartitionOf(message.ID), []byte(message.ID), message.Value, headers), nil
}

// Cancel returns the record that ends a pending message. Its verdict tells whether it was in time. The error is a
// *RequestInvalid.
func (r *Requests) Cancel(named Named) (*kgo.Record, error) {
	return r.control(named, []kgo.RecordHeader{header("postdate-action", "cancel")})
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

// Retry returns the record by which a consumer gives a message back, to be delivered again to its topic later. consumed
// is as the consumer got it, with all its headers. policy is a text (base=1s, attempts=5) or the name of a policy of the
// request topic. reason tells the next consumer why it comes back, "" if that is not told. The error is a
// *RequestInvalid.
func (r *Requests) Retry(consumed *kgo.Record, policy, reason string) (*kgo.Record, error) {
	if strings.TrimSpace(policy) == "" || len(policy) > policyBytesMax || !isASCII(policy) {
		return nil, invalid("bad-retry",
			"a policy is a text such as base=1s, attempts=5, or a name, of at most %d ASCII characters", policyBytesMax)
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
				"the origin names partition %d of %s, and %s was said to have %d: ask the cluster for their number",
				origin.Partition, origin.Topic, r.name, r.partitions)
		}
		headers = append(headers, header("postdate-origin", named.text))
		return r.record(origin.Partition, nil, nil, headers), nil
	}
	return nil, invalid("missing-id", "give ByID or ByOrigin")
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

// isCounted says whether the attempts of a return count from this header.
func isCounted(name string) bool {
	switch name {
	case "postdate-origin", "postdate-due", "postdate-id", "postdate-attempt", "postdate-first-origin", "postdate-first-due":
		return true
	}
	return false
}

func isAdded(name string) bool {
	return isCounted(name) || name == "postdate-moved" || name == "postdate-error" || strings.HasPrefix(name, "postdate-dead-")
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
	if grace == 0 {
		return headers, nil
	}
	milliseconds, err := ceilMs("grace", grace)
	return append(headers, header("postdate-grace", strconv.FormatInt(milliseconds, 10))), err
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
	// Attempt is the number of the retry; 0: the message was not given back before, and the next three are empty.
	Attempt     int64
	FirstOrigin *Origin
	FirstDue    time.Time
	Error       string // why it was given back; "": that was not told
	Headers     []kgo.RecordHeader
}

// ReadDelivered returns what the headers of a delivered record tell. The error is a *FormatError.
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
	if text, ok := added["postdate-attempt"]; ok {
		if read.Attempt, err = natural("postdate-attempt", text); err != nil {
			return Delivered{}, err
		}
	}
	if text, ok := added["postdate-first-origin"]; ok {
		first, err := ParseOrigin(text)
		if err != nil {
			return Delivered{}, err
		}
		read.FirstOrigin = &first
	}
	if text, ok := added["postdate-first-due"]; ok {
		first, err := natural("postdate-first-due", text)
		if err != nil {
			return Delivered{}, err
		}
		read.FirstDue = time.UnixMilli(first)
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
)

// Answer is one verdict: the answer to the request Origin.
type Answer struct {
	Origin  Origin
	ID      string // that the request names; "": none
	Verdict Verdict
	Of      *Origin   // the request that was acted on, if there is one
	At      time.Time // by the clock of the writer
}

// ReadVerdict returns the verdict in the value of a record on the verdicts topic. The error is a *FormatError.
func ReadVerdict(value []byte) (Answer, error) {
	fields := map[string]json.RawMessage{}
	if len(value) > verdictBytesMax || !utf8.Valid(value) || json.Unmarshal(value, &fields) != nil {
		return Answer{}, malformed("a verdict is a JSON object of at most %d bytes", verdictBytesMax)
	}
	if string(fields["v"]) != "1" {
		return Answer{}, malformed("a verdict has a version other than 1: use a newer client")
	}
	var texts [4]string
	for i, field := range []string{"origin", "id", "verdict", "of"} {
		if raw, ok := fields[field]; ok && json.Unmarshal(raw, &texts[i]) != nil {
			return Answer{}, malformed("a verdict has a field %s that is not a text", field)
		}
	}
	answer := Answer{ID: texts[1], Verdict: Verdict(texts[2])}
	switch answer.Verdict {
	case Accepted, Rejected, Cancelled, Rescheduled, Replaced, WasSent, Dead, NotFound, TooLate:
	default:
		return Answer{}, malformed("a verdict has a word that this client does not know: use a newer client")
	}
	at, err := natural("at", string(fields["at"]))
	if err != nil {
		return Answer{}, err
	}
	answer.At = time.UnixMilli(at)
	if answer.Origin, err = ParseOrigin(texts[0]); err != nil {
		return Answer{}, err
	}
	if texts[3] != "" {
		of, err := ParseOrigin(texts[3])
		if err != nil {
			return Answer{}, err
		}
		answer.Of = &of
	}
	return answer, nil
}
