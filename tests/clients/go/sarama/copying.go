package main

import (
	"sync"
	"sync/atomic"

	"coordinator/clients/talk"

	"github.com/IBM/sarama"
)

const recordsMax = 20

// copier copies records with sarama, each batch of a partition in one transaction of the only producer. The producer
// sends the offsets when it commits, so `hold` makes the worker wait after it has written the records.
type copier struct {
	lock     sync.Mutex
	producer sarama.SyncProducer
	group    string
	sink     string
	holds    atomic.Bool
	resumed  chan struct{}
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim copies the records of a partition. An error ends the session, and the next one begins at the committed
// offsets.
func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	partition := []talk.Partition{{claim.Topic(), claim.Partition()}}
	talk.Tell("assigned", "partitions", partition)
	defer talk.Tell("revoked", "partitions", partition)
	for first := range claim.Messages() {
		messages := []*sarama.ConsumerMessage{first}
		for len(messages) < recordsMax && len(claim.Messages()) > 0 {
			messages = append(messages, <-claim.Messages())
		}
		if err := c.copyBatch(session, messages); err != nil {
			talk.TellError(err)
			return err
		}
	}
	return nil
}

func (c *copier) copyBatch(session sarama.ConsumerGroupSession, messages []*sarama.ConsumerMessage) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if err := c.producer.BeginTxn(); err != nil {
		talk.Fail(err)
	}
	if err := c.commitBatch(session, messages); err != nil {
		if abort := c.producer.AbortTxn(); abort != nil {
			talk.Fail(abort)
		}
		return err
	}
	offsets := []int64{}
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	talk.TellCopied(messages[0].Topic, messages[0].Partition, offsets)
	return nil
}

func (c *copier) commitBatch(session sarama.ConsumerGroupSession, messages []*sarama.ConsumerMessage) error {
	copies := []*sarama.ProducerMessage{}
	for _, message := range messages {
		value := sarama.ByteEncoder(message.Value)
		copies = append(copies, &sarama.ProducerMessage{Topic: c.sink, Partition: message.Partition, Value: value})
	}
	if err := c.producer.SendMessages(copies); err != nil {
		return err
	}
	member := sarama.NewConsumerGroupMetadataFromSession(session, c.group, nil)
	if err := c.producer.AddMessageToTxnWithGroupMetadata(messages[len(messages)-1], member, nil); err != nil {
		return err
	}
	if c.holds.CompareAndSwap(true, false) {
		talk.Tell("held", "partitions", []talk.Partition{})
		<-c.resumed
	}
	return c.producer.CommitTxn()
}

func copyRecords(config talk.Config, orders <-chan string) {
	consumes := settings(config)
	consumes.Consumer.IsolationLevel = sarama.ReadCommitted // it also makes the committed offsets stable ones
	produces := settings(config)
	produces.Net.MaxOpenRequests = 1
	produces.Producer.Idempotent = true
	produces.Producer.RequiredAcks = sarama.WaitForAll
	produces.Producer.Return.Successes = true
	produces.Producer.Partitioner = sarama.NewManualPartitioner
	produces.Producer.Transaction.ID = config.TransactionalID
	produces.Producer.Transaction.Timeout = config.TransactionMs.Duration()
	producer, err := sarama.NewSyncProducer([]string{config.Bootstrap}, produces)
	if err != nil {
		talk.Fail(err)
	}
	c := &copier{producer: producer, group: config.Group, sink: config.Sink, resumed: make(chan struct{}, 1)}
	group := join(config, consumes, c)
	for order := range orders {
		switch order {
		case "hold":
			c.holds.Store(true)
		case "resume":
			c.resumed <- struct{}{}
		case "close":
			if err := group.Close(); err != nil {
				talk.Fail(err)
			}
			return
		}
	}
}
