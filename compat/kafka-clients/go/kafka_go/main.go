// What segmentio/kafka-go does with a broker. Each check prints PASS and its name, or FAIL and
// what happened. With -list only their names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
)

var bootstrap = os.Getenv("BOOTSTRAP")

func writer(topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr:         kafka.TCP(bootstrap),
		Topic:        topic,
		Balancer:     &kafka.Hash{},
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: time.Millisecond,
	}
}

func create(ctx context.Context, topic string, partitions int) error {
	client := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1},
	}})
	if err != nil {
		return err
	}
	return made.Errors[topic]
}

func roundTrip(ctx context.Context) error {
	const topic = "kafka-go-round-trip"
	if err := create(ctx, topic, 1); err != nil {
		return err
	}
	w := writer(topic)
	defer w.Close()
	for _, codec := range []compress.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		w.Compression = codec
		header := []kafka.Header{{Key: "codec", Value: []byte(fmt.Sprint(codec))}}
		message := kafka.Message{Key: []byte("key"), Value: []byte("value"), Headers: header}
		if err := w.WriteMessages(ctx, message); err != nil {
			return err
		}
	}
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic})
	defer r.Close()
	for offset := int64(0); offset < 5; offset++ {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return err
		}
		if m.Offset != offset || string(m.Key) != "key" || len(m.Headers) != 1 {
			return fmt.Errorf("at %d: %+v", offset, m)
		}
	}
	return nil
}

func group(ctx context.Context) error {
	const topic = "kafka-go-group"
	if err := create(ctx, topic, 2); err != nil {
		return err
	}
	config := kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: topic, Topic: topic, StartOffset: kafka.FirstOffset,
	}
	w := writer(topic)
	defer w.Close()
	seen := map[string]bool{}
	for round := 0; round < 2; round++ { // The second reader goes on where the first was.
		for n := 0; n < 10; n++ {
			value := []byte(fmt.Sprintf("%d-%d", round, n))
			if err := w.WriteMessages(ctx, kafka.Message{Key: value, Value: value}); err != nil {
				return err
			}
		}
		r := kafka.NewReader(config)
		for n := 0; n < 10; n++ {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				return err
			}
			if seen[string(m.Value)] {
				return fmt.Errorf("%s came twice", m.Value)
			}
			seen[string(m.Value)] = true
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}

func unknownTopic(ctx context.Context) error {
	client := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{"kafka-go-nothing"}})
	if err != nil {
		return err
	}
	if !errors.Is(found.Topics[0].Error, kafka.UnknownTopicOrPartition) {
		return fmt.Errorf("%+v", found.Topics[0])
	}
	return nil
}

func main() {
	list := flag.Bool("list", false, "names only")
	flag.Parse()
	for _, each := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"keys, headers and every codec", roundTrip},
		{"a group goes on where it was", group},
		{"a topic that is not there", unknownTopic},
	} {
		if *list {
			fmt.Println(each.name)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		if err := each.run(ctx); err != nil {
			fmt.Printf("FAIL %s: %v\n", each.name, err)
		} else {
			fmt.Printf("PASS %s\n", each.name)
		}
		cancel()
	}
}
