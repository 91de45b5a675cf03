// Groups reads all groups of a cluster as a tool for lag does, with the admin client of franz-go or of sarama: it lists
// them, describes all that it has listed, and fetches their offsets.
//
//	groups franz|sarama BOOTSTRAP ROUNDS
//
// It writes a line of JSON for each round.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"coordinator/clients/talk"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// scrape is what one round has found.
type scrape struct {
	Listed  []string                    `json:"listed"`
	States  map[string]string           `json:"states"`
	Offsets map[string]map[string]int64 `json:"offsets"` // by group and "topic/partition"
	Errors  map[string]string           `json:"errors"`  // by group
}

func newScrape() scrape {
	return scrape{[]string{}, map[string]string{}, map[string]map[string]int64{}, map[string]string{}}
}

// note records an error about a group, or returns whether there is none.
func (s scrape) note(group string, err error) bool {
	if err != nil {
		s.Errors[group] = err.Error()
	}
	return err == nil
}

func (s scrape) offset(group, topic string, partition int32, at int64) {
	if s.Offsets[group] == nil {
		s.Offsets[group] = map[string]int64{}
	}
	s.Offsets[group][fmt.Sprintf("%s/%d", topic, partition)] = at
}

func withFranz(bootstrap string) func() (scrape, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("franz-go"))
	if err != nil {
		talk.Fail(err)
	}
	admin, always := kadm.NewClient(client), context.Background()
	return func() (scrape, error) {
		found := newScrape()
		listed, err := admin.ListGroups(always)
		if err != nil {
			return found, err
		}
		found.Listed = listed.Groups()
		described, err := admin.DescribeGroups(always, found.Listed...)
		if err != nil {
			return found, err
		}
		for group, each := range described {
			if found.note(group, each.Err) {
				found.States[group] = each.State
			}
		}
		for group, each := range admin.FetchManyOffsets(always, found.Listed...) {
			found.note(group, each.Err)
			each.Fetched.Each(func(at kadm.OffsetResponse) {
				if found.note(group, at.Err) {
					found.offset(group, at.Topic, at.Partition, at.At)
				}
			})
		}
		return found, nil
	}
}

func withSarama(bootstrap string) func() (scrape, error) {
	config := sarama.NewConfig()
	config.Version, config.ClientID = sarama.MaxVersion, "sarama"
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config)
	if err != nil {
		talk.Fail(err)
	}
	return func() (scrape, error) {
		found := newScrape()
		listed, err := admin.ListConsumerGroups()
		if err != nil {
			return found, err
		}
		found.Listed = slices.Sorted(maps.Keys(listed))
		described, err := admin.DescribeConsumerGroups(found.Listed)
		if err != nil {
			return found, err
		}
		for _, each := range described {
			if found.note(each.GroupId, failure(each.Err)) {
				found.States[each.GroupId] = each.State
			}
		}
		return found, saramaOffsets(admin, found)
	}
}

func saramaOffsets(admin sarama.ClusterAdmin, found scrape) error {
	all := map[string]map[string][]int32{}
	for _, group := range found.Listed {
		all[group] = nil
	}
	fetched, err := admin.ListConsumerGroupOffsetsBatch(all)
	for group, each := range fetched {
		found.note(group, failure(each.Err))
		for topic, blocks := range each.Blocks {
			for partition, at := range blocks {
				if found.note(group, failure(at.Err)) {
					found.offset(group, topic, partition, at.Offset)
				}
			}
		}
	}
	return err
}

// failure returns an error of sarama, which has a value for "no error".
func failure(err sarama.KError) error {
	if err == sarama.ErrNoError {
		return nil
	}
	return err
}

func main() {
	if len(os.Args) != 4 {
		talk.Fail(fmt.Errorf("usage: %s franz|sarama BOOTSTRAP ROUNDS", os.Args[0]))
	}
	rounds, err := strconv.Atoi(os.Args[3])
	if err != nil {
		talk.Fail(err)
	}
	tools := map[string]func(string) func() (scrape, error){"franz": withFranz, "sarama": withSarama}
	read := tools[os.Args[1]](os.Args[2])
	for range rounds {
		found, err := read()
		if err != nil {
			talk.Fail(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
			talk.Fail(err)
		}
	}
}
