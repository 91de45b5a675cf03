// Package talk is the protocol between worker programs written in Go and their parent process: see tests/clients.
package talk

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Config is the configuration of a worker, given as JSON on its command line.
type Config struct {
	Bootstrap   string   `json:"bootstrap"`
	Group       string   `json:"group"`
	ClientID    string   `json:"client_id"`
	Topics      []string `json:"topics"`
	Pattern     string   `json:"pattern"`
	Assignor    string   `json:"assignor"`
	Protocol    string   `json:"protocol"`
	Instance    string   `json:"instance"`
	SessionMs   Ms       `json:"session_ms"`
	HeartbeatMs Ms       `json:"heartbeat_ms"`
	MetadataMs  Ms       `json:"metadata_ms"`

	// A worker that copies records also has:
	Sink            string `json:"sink"`
	TransactionalID string `json:"transactional_id"`
	TransactionMs   Ms     `json:"transaction_ms"`
}

// Ms is a number of milliseconds.
type Ms int64

func (ms Ms) Duration() time.Duration { return time.Duration(ms) * time.Millisecond }

// Partition is the topic and the number of a partition.
type Partition [2]any

var writing sync.Mutex

// ReadConfig returns the configuration from the command line, or ends the program.
func ReadConfig() (config Config) {
	if len(os.Args) != 2 {
		Fail(fmt.Errorf("usage: %s CONFIG", os.Args[0]))
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &config); err != nil {
		Fail(err)
	}
	return config
}

// Tell writes an event immediately and in one write.
func Tell(event string, name string, what any) {
	line, err := json.Marshal(map[string]any{"event": event, name: what})
	if err != nil {
		Fail(err)
	}
	write(line)
}

// TellRecords writes the offsets of records that were read from a partition.
func TellRecords(topic string, partition int32, offsets []int64) {
	told := map[string]any{"event": "records", "partition": Partition{topic, partition}, "offsets": offsets}
	line, err := json.Marshal(told)
	if err != nil {
		Fail(err)
	}
	write(line)
}

// TellError writes an error. The worker continues.
func TellError(err error) { Tell("error", "error", err.Error()) }

// TellCopied writes the records of a partition that were copied in a transaction, and the offset that it committed.
func TellCopied(topic string, partition int32, offsets []int64) {
	TellRecords(topic, partition, offsets)
	Tell("committed", "offsets", [][3]any{{topic, partition, offsets[len(offsets)-1] + 1}})
}

// Pairs returns the partitions of a map from topics to numbers.
func Pairs(numbers map[string][]int32) []Partition {
	pairs := []Partition{}
	for topic, of := range numbers {
		for _, number := range of {
			pairs = append(pairs, Partition{topic, number})
		}
	}
	return pairs
}

// WaitFor waits for a command, and drops those before it.
func WaitFor(orders <-chan string, word string) {
	for order := range orders {
		if order == word {
			return
		}
	}
}

// Orders returns the commands on stdin. The end of stdin ends the program, because its parent process has ended.
func Orders() <-chan string {
	orders := make(chan string, 16)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			orders <- lines.Text()
		}
		os.Exit(1)
	}()
	return orders
}

// Fail ends the program with an error.
func Fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func write(line []byte) {
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.Write(append(line, '\n'))
}
