// Many producers and as many consumers, in pairs, each pair with a partition of its own and one
// message on its way. A round is over when the message is acknowledged and with the consumer.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"time"

	"entrepot/bench/window"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	broker = flag.String("broker", "", "its address")
	topic  = flag.String("topic", "", "with at least as many partitions as there are pairs")
	pairs  = flag.Int("pairs", 1, "of a producer and a consumer")
	warmUp = flag.Duration("warm-up", time.Second, "before measuring")
	length = flag.Duration("length", 2*time.Second, "of measuring")
)

type pair struct {
	partition          int32
	producer, consumer *kgo.Client
}

func connect(partition int32) (*pair, error) {
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(*broker),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	)
	if err != nil {
		return nil, err
	}
	start := map[int32]kgo.Offset{partition: kgo.NewOffset().AtStart()}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(*broker),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*topic: start}),
	)
	return &pair{partition, producer, consumer}, err
}

// record returns the one with that number, which has nothing in common with the one before.
func (p *pair) record(number int, now time.Time) *kgo.Record {
	name := fmt.Sprintf("%d-%d", p.partition, number)
	return &kgo.Record{
		Topic:     *topic,
		Partition: p.partition,
		Key:       []byte(name),
		Value:     fmt.Appendf(nil, `{"order":%d,"customer":"%s","at":%d}`, number, name, now.UnixNano()),
		Headers: []kgo.RecordHeader{
			{Key: "trace", Value: []byte("00-" + name)},
			{Key: "correlation", Value: fmt.Appendf(nil, "request-%d", number*7919)},
		},
	}
}

func (p *pair) run(w *window.Window, times *window.Times) error {
	defer p.producer.Close()
	defer p.consumer.Close()
	defer times.Close()
	for number := 0; !w.Over(); number++ {
		now := time.Now()
		acknowledged := make(chan error, 1)
		p.producer.Produce(context.Background(), p.record(number, now),
			func(_ *kgo.Record, err error) { acknowledged <- err })
		if err := p.take(number); err != nil {
			return err
		}
		if err := <-acknowledged; err != nil {
			return err
		}
		times.Done(now)
	}
	return nil
}

func (p *pair) take(number int) error {
	fetches := p.consumer.PollRecords(context.Background(), 1)
	if err := fetches.Err(); err != nil {
		return err
	}
	name := fmt.Sprintf("%d-%d", p.partition, number)
	value := fmt.Sprintf(`{"order":%d,"customer":"%s",`, number, name)
	for _, record := range fetches.Records() {
		if string(record.Key) != name || !strings.HasPrefix(string(record.Value), value) {
			return fmt.Errorf("expected %s, got %s: %s", name, record.Key, record.Value)
		}
		return nil
	}
	return fmt.Errorf("nothing came instead of %s", name)
}

func main() {
	flag.Parse()
	w := window.New()
	ready := make([]*pair, *pairs)
	for i := range ready {
		var err error
		ready[i], err = connect(int32(i))
		window.Check(err)
	}
	var waiting sync.WaitGroup
	for _, each := range ready {
		times := w.Times()
		waiting.Go(func() { window.Check(each.run(w, times)) })
	}
	w.Run(*warmUp, *length, &waiting)
}
