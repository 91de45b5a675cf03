// A worker with sarama's consumer group. With a sink in its configuration it copies records: see copying.go.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"sync"

	"coordinator/clients/talk"

	"github.com/IBM/sarama"
)

var strategies = map[string]sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange(),
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky(),
}

// member is the handler of a group's sessions. It writes an event for each partition when its claim begins and ends,
// because a session of a cooperative group outlives its rebalances.
type member struct {
	lock    sync.Mutex
	session sarama.ConsumerGroupSession
	unsaved map[talk.Partition]*sarama.ConsumerMessage // the last record read of each partition
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session, m.unsaved = session, map[talk.Partition]*sarama.ConsumerMessage{}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	partition := talk.Partition{claim.Topic(), claim.Partition()}
	talk.Tell("assigned", "partitions", []talk.Partition{partition})
	for message := range claim.Messages() {
		m.lock.Lock()
		m.unsaved[partition] = message
		m.lock.Unlock()
		talk.TellRecords(message.Topic, message.Partition, []int64{message.Offset})
	}
	m.lock.Lock()
	delete(m.unsaved, partition)
	m.lock.Unlock()
	talk.Tell("revoked", "partitions", []talk.Partition{partition})
	return nil
}

func (m *member) commit() {
	m.lock.Lock()
	defer m.lock.Unlock()
	committed := [][3]any{}
	for partition, message := range m.unsaved {
		m.session.MarkMessage(message, "")
		committed = append(committed, [3]any{partition[0], partition[1], message.Offset + 1})
	}
	m.session.Commit()
	talk.Tell("committed", "offsets", committed)
}

func settings(config talk.Config) *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.MaxVersion
	settings.ClientID = config.ClientID
	settings.Metadata.RefreshFrequency = config.MetadataMs.Duration()
	settings.Consumer.Group.InstanceId = config.Instance
	settings.Consumer.Group.Session.Timeout = config.SessionMs.Duration()
	settings.Consumer.Group.Heartbeat.Interval = config.HeartbeatMs.Duration()
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[config.Assignor]}
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Return.Errors = true
	return settings
}

// consume runs one session after another until the group is closed.
func consume(group sarama.ConsumerGroup, topics []string, handler sarama.ConsumerGroupHandler) {
	for {
		err := group.Consume(context.Background(), topics, handler)
		if errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return
		}
		if err != nil {
			talk.TellError(err)
		}
	}
}

// join starts a member of the group.
func join(config talk.Config, settings *sarama.Config, handler sarama.ConsumerGroupHandler) sarama.ConsumerGroup {
	group, err := sarama.NewConsumerGroup([]string{config.Bootstrap}, config.Group, settings)
	if err != nil {
		talk.Fail(err)
	}
	go func() {
		for err := range group.Errors() {
			talk.TellError(err)
		}
	}()
	go consume(group, config.Topics, handler)
	return group
}

func main() {
	config, orders := talk.ReadConfig(), talk.Orders()
	sarama.Logger = log.New(os.Stderr, "", log.Ltime|log.Lmicroseconds)
	if config.Sink != "" {
		copyRecords(config, orders)
		return
	}
	m := &member{}
	group := join(config, settings(config), m)
	for order := range orders {
		if order == "close" {
			break
		}
		m.commit()
	}
	if err := group.Close(); err != nil {
		talk.Fail(err)
	}
}
