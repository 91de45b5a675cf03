// A worker with franz-go's consumer. With a sink in its configuration it copies records: see copying.go.
package main

import (
	"context"
	"os"
	"time"

	"coordinator/clients/talk"

	"github.com/twmb/franz-go/pkg/kgo"
)

const pollWait = 100 * time.Millisecond

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

type partitions = map[string][]int32

// teller returns a callback that writes an event with its partitions.
func teller(event string) func(context.Context, *kgo.Client, partitions) {
	return func(_ context.Context, _ *kgo.Client, numbers partitions) {
		talk.Tell(event, "partitions", talk.Pairs(numbers))
	}
}

func options(config talk.Config) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(config.Bootstrap),
		kgo.ConsumerGroup(config.Group),
		kgo.ClientID(config.ClientID),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, func() string { return time.Now().Format("15:04:05.000 ") })),
		kgo.Balancers(balancers[config.Assignor]),
		kgo.SessionTimeout(config.SessionMs.Duration()),
		kgo.HeartbeatInterval(config.HeartbeatMs.Duration()),
		kgo.MetadataMaxAge(config.MetadataMs.Duration()),
		kgo.MetadataMinAge(config.MetadataMs.Duration() / 2),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(teller("assigned")),
		kgo.OnPartitionsRevoked(teller("revoked")),
		kgo.OnPartitionsLost(teller("lost")),
	}
	if config.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if config.Instance != "" {
		options = append(options, kgo.InstanceID(config.Instance))
	}
	if config.Pattern != "" {
		return append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(config.Pattern))
	}
	return append(options, kgo.ConsumeTopics(config.Topics...))
}

func poll(client *kgo.Client) {
	wait, cancel := context.WithTimeout(context.Background(), pollWait)
	defer cancel()
	fetches := client.PollFetches(wait)
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
		offsets := []int64{}
		fetched.EachRecord(func(record *kgo.Record) { offsets = append(offsets, record.Offset) })
		if len(offsets) > 0 {
			talk.TellRecords(fetched.Topic, fetched.Partition, offsets)
		}
	})
	if wait.Err() == nil {
		fetches.EachError(func(_ string, _ int32, err error) { talk.TellError(err) })
	}
	client.AllowRebalance()
}

func commit(client *kgo.Client) {
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		talk.TellError(err)
		return
	}
	committed := [][3]any{}
	for topic, of := range client.CommittedOffsets() {
		for partition, at := range of {
			committed = append(committed, [3]any{topic, partition, at.Offset})
		}
	}
	talk.Tell("committed", "offsets", committed)
}

func main() {
	config, orders := talk.ReadConfig(), talk.Orders()
	if config.Sink != "" {
		copyRecords(config, orders)
		return
	}
	// Polled records are reported before a revocation.
	client, err := kgo.NewClient(append(options(config), kgo.BlockRebalanceOnPoll())...)
	if err != nil {
		talk.Fail(err)
	}
	defer client.CloseAllowingRebalance()
	for {
		select {
		case order := <-orders:
			if order == "close" {
				return
			}
			commit(client)
		default:
			poll(client)
		}
	}
}
