// rueidis: rueidis PORT. Its client caches by invalidation pushes, and so needs RESP3.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

func check(right bool, format string, values ...any) {
	if !right {
		log.Fatalf(format, values...)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	options := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + os.Args[1]}, DisableCache: true}
	client, err := rueidis.NewClient(options)
	check(err == nil, "a connection: %v", err)
	defer client.Close()

	long := strings.Repeat("tide", 1_500_000)
	check(client.Do(ctx, client.B().Set().Key("long").Value(long).Build()).Error() == nil, "SET")
	value, err := client.Do(ctx, client.B().Get().Key("long").Build()).ToString()
	check(err == nil && value == long, "GET of a long value: %v", err)
	_, err = client.Do(ctx, client.B().Get().Key("none").Build()).ToString()
	check(rueidis.IsRedisNil(err), "GET of nothing: %v", err)

	client.Do(ctx, client.B().Del().Key("count").Build())
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 100 {
				err := client.Do(ctx, client.B().Incr().Key("count").Build()).Error()
				check(err == nil, "INCR: %v", err)
			}
		})
	}
	all.Wait()
	count, err := client.Do(ctx, client.B().Get().Key("count").Build()).AsInt64()
	check(err == nil && count == 6400, "%d increments: %v", count, err)

	commands := make(rueidis.Commands, 0, 1000)
	for number := range 1000 {
		commands = append(commands, client.B().Set().Key(fmt.Sprint("k", number)).Value(fmt.Sprint(number)).Build())
	}
	for _, reply := range client.DoMulti(ctx, commands...) {
		check(reply.Error() == nil, "a pipeline: %v", reply.Error())
	}
	err = client.Dedicated(func(own rueidis.DedicatedClient) error {
		own.Do(ctx, own.B().Watch().Key("count").Build())
		for _, reply := range own.DoMulti(ctx, own.B().Multi().Build(), own.B().Incr().Key("count").Build(), own.B().Exec().Build()) {
			if err := reply.Error(); err != nil {
				return err
			}
		}
		return nil
	})
	check(err == nil, "a transaction: %v", err)

	received := make(chan string, 1)
	listening, stop := context.WithCancel(ctx)
	go func() {
		_ = client.Receive(listening, client.B().Subscribe().Channel("tides").Build(), func(message rueidis.PubSubMessage) {
			select {
			case received <- message.Message:
			default:
			}
		})
	}()
	for done := false; !done; {
		client.Do(ctx, client.B().Publish().Channel("tides").Message("in").Build())
		select {
		case message := <-received:
			check(message == "in", "a message: %s", message)
			done = true
		case <-time.After(10 * time.Millisecond):
			check(ctx.Err() == nil, "no message")
		}
	}
	stop()
}
