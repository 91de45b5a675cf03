package main

import (
	"context"

	"coordinator/clients/talk"

	"github.com/twmb/franz-go/pkg/kgo"
)

const recordsMax = 20

// copier copies records with franz-go, each batch in one transaction of a GroupTransactSession. A session commits its
// offsets when it ends, so `hold` makes the worker wait after it has written the records.
type copier struct {
	session *kgo.GroupTransactSession
	sink    string
	orders  <-chan string
}

func copyRecords(config talk.Config, orders <-chan string) {
	session, err := kgo.NewGroupTransactSession(append(options(config),
		kgo.TransactionalID(config.TransactionalID),
		kgo.TransactionTimeout(config.TransactionMs.Duration()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)...)
	if err != nil {
		talk.Fail(err)
	}
	defer session.Close()
	worker, holds := copier{session, config.Sink, orders}, false
	for {
		select {
		case order := <-orders:
			if order == "close" {
				return
			}
			holds = holds || order == "hold"
		default:
			holds = worker.copySome(holds) && holds
		}
	}
}

// copySome copies some records, if there are any. It returns whether a command to hold still waits for its transaction.
func (c copier) copySome(holds bool) bool {
	wait, cancel := context.WithTimeout(context.Background(), pollWait)
	defer cancel()
	fetches := c.session.PollRecords(wait, recordsMax)
	if wait.Err() == nil {
		fetches.EachError(func(_ string, _ int32, err error) { talk.TellError(err) })
	}
	if fetches.NumRecords() == 0 {
		return true
	}
	if err := c.session.Begin(); err != nil {
		talk.Fail(err)
	}
	failure := kgo.AbortingFirstErrPromise(c.session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		copied := &kgo.Record{Topic: c.sink, Partition: record.Partition, Value: record.Value}
		c.session.Produce(context.Background(), copied, failure.Promise())
	})
	if holds {
		if err := c.session.Client().Flush(context.Background()); err != nil {
			talk.Fail(err)
		}
		talk.Tell("held", "partitions", []talk.Partition{})
		talk.WaitFor(c.orders, "resume")
	}
	c.end(fetches, failure.Err())
	return false
}

func (c copier) end(fetches kgo.Fetches, failure error) {
	committed, err := c.session.End(context.Background(), kgo.TransactionEndTry(failure == nil))
	if err != nil {
		talk.Fail(err)
	}
	if !committed {
		talk.Tell("error", "error", "the transaction was aborted")
		return
	}
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
		offsets := []int64{}
		fetched.EachRecord(func(record *kgo.Record) { offsets = append(offsets, record.Offset) })
		if len(offsets) > 0 {
			talk.TellCopied(fetched.Topic, fetched.Partition, offsets)
		}
	})
}
