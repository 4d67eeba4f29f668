// The client program for NATS JetStream.
//
//	nats-client URL send STREAM COUNT RATE DUE_MS   prints {"acknowledged": ..., "seconds": ...}
//	nats-client URL receive STREAM                  writes rows (see benchmarks/peers/arrivals.py)
//
// The receiver is an ordered consumer: it keeps its position itself, so a message that it gets at two positions is in the stream twice.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	bodySizeBytes = 150
	inFlightMax   = 512
	timeout       = 60 * time.Second
	step          = 5 * time.Millisecond
	flushEvery    = 2 * time.Millisecond
	queueRows     = 1 << 16
)

func main() {
	connection, err := nats.Connect(os.Args[1], nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	check(err)
	stream := os.Args[3]
	if os.Args[2] == "send" {
		send(connection, stream, number(4), number(5), int64(number(6)))
	} else {
		receive(connection, stream)
	}
}

func send(connection *nats.Conn, stream string, count, rate int, dueMs int64) {
	var refused error
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(inFlightMax),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { refused = err }))
	check(err)
	chance := rand.New(rand.NewSource(7))
	filler := make([]byte, 1<<16)
	chance.Read(filler)
	began := time.Now()
	for number := 0; number < count; number++ {
		for rate > 0 && float64(number) > time.Since(began).Seconds()*float64(rate) {
			time.Sleep(step)
		}
		due := dueMs
		if due == 0 {
			due = time.Now().UnixMilli() + 1_000 + chance.Int63n(4_001)
		}
		body := make([]byte, 16, bodySizeBytes)
		binary.BigEndian.PutUint64(body, uint64(number))
		binary.BigEndian.PutUint64(body[8:], uint64(due))
		first := number * 61 % (len(filler) - bodySizeBytes)
		message := nats.NewMsg(fmt.Sprintf("%s.schedule.%d", stream, number))
		message.Data = append(body, filler[first:first+bodySizeBytes-16]...)
		message.Header.Set("Nats-Schedule", "@at "+time.UnixMilli(due).UTC().Format("2006-01-02T15:04:05.000Z07:00"))
		message.Header.Set("Nats-Schedule-Target", stream+".target")
		_, err := js.PublishMsgAsync(message, jetstream.WithStallWait(timeout))
		check(err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(timeout):
		log.Fatalf("%d schedules were not acknowledged", js.PublishAsyncPending())
	}
	check(refused)
	fmt.Printf("{\"acknowledged\": %d, \"seconds\": %f}\n", count, time.Since(began).Seconds())
}

func receive(connection *nats.Conn, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	js, err := jetstream.New(connection)
	check(err)
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowMsgSchedules: true})
	check(err)
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{name + ".target"}})
	check(err)
	rows := make(chan [4]uint64, queueRows)
	rows <- [4]uint64{^uint64(0)}
	_, err = consumer.Consume(func(message jetstream.Msg) {
		nowUs := uint64(time.Now().UnixMicro())
		at, err := message.Metadata()
		check(err)
		body := message.Data()
		rows <- [4]uint64{binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:]), nowUs, at.Sequence.Stream}
	})
	check(err)
	out, flush := bufio.NewWriterSize(os.Stdout, 1<<20), time.NewTicker(flushEvery)
	for {
		select {
		case row := <-rows:
			check(binary.Write(out, binary.BigEndian, row))
		case <-flush.C:
			check(out.Flush())
		}
	}
}

func number(position int) int {
	value, err := strconv.Atoi(os.Args[position])
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
