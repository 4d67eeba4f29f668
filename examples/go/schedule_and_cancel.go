// Schedules two reminders with franz-go, cancels one of them by its id, and waits for the other.
//
// The id is the key of the request, so that schedule and cancel meet in one partition; postdate-key is the key that the
// reminder arrives with. franz-go places keys as Java's clients do by its default, StickyKeyPartitioner(nil). Sarama,
// kafka-go and confluent-kafka-go do not: they need a murmur2 partitioner (see ../README.md).
//
//	cd examples/go && go run schedule_and_cancel.go
//
// BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const reminders = "example.go.reminders"

var requests = fromEnvironment("REQUESTS", "postdate.requests")

func fromEnvironment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func schedule(id, customer, text, delay string) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte(text), Headers: []kgo.RecordHeader{
		{Key: "postdate-topic", Value: []byte(reminders)},
		{Key: "postdate-delay", Value: []byte(delay)},
		{Key: "postdate-id", Value: []byte(id)},
		{Key: "postdate-key", Value: []byte(customer)},
	}}
}

func cancel(id string) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: []byte(id), Headers: []kgo.RecordHeader{
		{Key: "postdate-action", Value: []byte("cancel")},
		{Key: "postdate-id", Value: []byte(id)},
	}}
}

func header(record *kgo.Record, name string) string {
	for _, each := range record.Headers {
		if each.Key == name {
			return string(each.Value)
		}
	}
	return ""
}

func run(ctx context.Context) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(fromEnvironment("BOOTSTRAP", "localhost:9092"), ",")...),
		kgo.ConsumerGroup("example.go"),
		kgo.ConsumeTopics(reminders),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(ctx, 1, -1, nil, reminders)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	for _, request := range []*kgo.Record{
		schedule("reminder-1", "customer-42", "your basket is waiting", "2s"),
		schedule("reminder-2", "customer-42", "your voucher ends today", "PT2S"),
		cancel("reminder-1"),
	} {
		if err := client.ProduceSync(ctx, request).FirstErr(); err != nil {
			return err
		}
	}
	for arrived := 0; arrived == 0; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Printf("%s for %s: %s\n", header(record, "postdate-id"), record.Key, record.Value)
			arrived++
		})
	}
	return client.CommitUncommittedOffsets(ctx)
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
