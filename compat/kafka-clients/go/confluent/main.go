// What confluent-kafka-go does with a broker. Each check prints PASS and its name, or FAIL and
// what happened. With -list only their names.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

var bootstrap = os.Getenv("BOOTSTRAP")

func producer(more kafka.ConfigMap) (*kafka.Producer, error) {
	config := kafka.ConfigMap{"bootstrap.servers": bootstrap, "go.delivery.reports": false}
	for key, value := range more {
		config[key] = value
	}
	return kafka.NewProducer(&config)
}

func send(p *kafka.Producer, topic string, values ...string) error {
	for _, value := range values {
		place := kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}
		message := kafka.Message{TopicPartition: place, Key: []byte(value), Value: []byte(value)}
		if err := p.Produce(&message, nil); err != nil {
			return err
		}
	}
	if left := p.Flush(30000); left > 0 {
		return fmt.Errorf("%d were not delivered", left)
	}
	return nil
}

func read(group, topic string, count int) ([]string, error) {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": bootstrap, "group.id": group,
		"auto.offset.reset": "earliest", "isolation.level": "read_committed",
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SubscribeTopics([]string{topic}, nil); err != nil {
		return nil, err
	}
	var found []string
	for len(found) < count {
		m, err := c.ReadMessage(30 * time.Second)
		if err != nil {
			return found, err
		}
		found = append(found, string(m.Value))
	}
	return found, nil
}

func roundTrip(ctx context.Context) error {
	p, err := producer(kafka.ConfigMap{"enable.idempotence": true})
	if err != nil {
		return err
	}
	defer p.Close()
	if err := send(p, "confluent-go", "a", "b", "c"); err != nil {
		return err
	}
	found, err := read("confluent-go", "confluent-go", 3)
	if err == nil && fmt.Sprint(found) != "[a b c]" {
		err = fmt.Errorf("%v", found)
	}
	return err
}

func transaction(ctx context.Context) error {
	p, err := producer(kafka.ConfigMap{"transactional.id": "confluent-go"})
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.InitTransactions(ctx); err != nil {
		return err
	}
	for _, word := range []string{"kept", "dropped", "last"} {
		if err := p.BeginTransaction(); err != nil {
			return err
		}
		if err := send(p, "confluent-go-tx", word); err != nil {
			return err
		}
		end := p.CommitTransaction
		if word == "dropped" {
			end = p.AbortTransaction
		}
		if err := end(ctx); err != nil {
			return err
		}
	}
	found, err := read("confluent-go-tx", "confluent-go-tx", 2)
	if err == nil && fmt.Sprint(found) != "[kept last]" {
		err = fmt.Errorf("%v", found)
	}
	return err
}

func administer(ctx context.Context) error {
	admin, err := kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": bootstrap})
	if err != nil {
		return err
	}
	defer admin.Close()
	topic := kafka.TopicSpecification{Topic: "confluent-go-admin", NumPartitions: 3, ReplicationFactor: 1}
	made, err := admin.CreateTopics(ctx, []kafka.TopicSpecification{topic})
	if err != nil || made[0].Error.Code() != kafka.ErrNoError {
		return fmt.Errorf("%v %v", made, err)
	}
	found, err := admin.GetMetadata(&topic.Topic, false, 30000)
	if err != nil || len(found.Topics[topic.Topic].Partitions) != 3 {
		return fmt.Errorf("%v %v", found, err)
	}
	gone, err := admin.DeleteTopics(ctx, []string{topic.Topic})
	if err != nil || gone[0].Error.Code() != kafka.ErrNoError {
		return fmt.Errorf("%v %v", gone, err)
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
		{"written and read in a group", roundTrip},
		{"transactions", transaction},
		{"topics are made and deleted", administer},
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
