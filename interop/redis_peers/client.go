// go-redis: client PORT VERSION.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

func check(right bool, format string, values ...any) {
	if !right {
		log.Fatalf(format, values...)
	}
}

func main() {
	version, _ := strconv.Atoi(os.Args[2])
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: version, ClientName: "peer"})
	defer client.Close()

	long := strings.Repeat("tide", 1_500_000)
	check(client.Set(ctx, "long", long, 0).Err() == nil, "SET")
	check(client.Get(ctx, "long").Val() == long, "GET of a long value")
	client.HSet(ctx, "h", "one", "1", "two", "2")
	hash := client.HGetAll(ctx, "h").Val()
	check(len(hash) == 2 && hash["two"] == "2", "HGETALL %v", hash)
	client.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "one"}, redis.Z{Score: 2.5, Member: "two"})
	scores := client.ZRangeWithScores(ctx, "z", 0, -1).Val()
	check(len(scores) == 2 && scores[0].Score == 1.5, "ZRANGE %v", scores)
	check(client.Get(ctx, "none").Err() == redis.Nil, "GET of nothing")
	wrong := client.Incr(ctx, "h").Err()
	check(wrong != nil && strings.HasPrefix(wrong.Error(), "WRONGTYPE"), "INCR of a hash: %v", wrong)

	client.Del(ctx, "count")
	commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 5000 {
			pipe.Incr(ctx, "count")
		}
		return nil
	})
	check(err == nil && commands[4999].(*redis.IntCmd).Val() == 5000, "a pipeline: %v", err)

	client.Set(ctx, "watched", 1, 0)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				err := client.Watch(ctx, func(tx *redis.Tx) error {
					value, _ := tx.Get(ctx, "watched").Int()
					_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						return pipe.Set(ctx, "watched", value*2, 0).Err()
					})
					return err
				}, "watched")
				if err != redis.TxFailedErr {
					check(err == nil, "a transaction: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	check(client.Get(ctx, "watched").Val() == "256", "transactions: %v", client.Get(ctx, "watched"))

	client.Del(ctx, "jobs")
	job := make(chan []string)
	go func() { job <- client.BLPop(ctx, 30*time.Second, "jobs").Val() }()
	client.RPush(ctx, "jobs", "job")
	check(fmt.Sprint(<-job) == "[jobs job]", "BLPOP")

	subscriber := client.Subscribe(ctx, "tide")
	_, err = subscriber.Receive(ctx)
	check(err == nil, "SUBSCRIBE: %v", err)
	check(client.Publish(ctx, "tide", "in").Val() == 1, "PUBLISH")
	message, err := subscriber.ReceiveMessage(ctx)
	check(err == nil && message.Payload == "in", "a message: %v", err)
	subscriber.Close()
}
