// gomemcache: gomemcache PORT.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"
)

func check(right bool, format string, values ...any) {
	if !right {
		log.Fatalf(format, values...)
	}
}

func main() {
	client := memcache.New("127.0.0.1:" + os.Args[1])
	check(client.Ping() == nil, "version")
	long := []byte(strings.Repeat("tide", 100_000))
	check(client.Set(&memcache.Item{Key: "long", Value: long, Flags: 7}) == nil, "set")
	item, err := client.Get("long")
	check(err == nil && string(item.Value) == string(long) && item.Flags == 7, "get of a long value: %v", err)
	_, err = client.Get("none")
	check(errors.Is(err, memcache.ErrCacheMiss), "get of nothing: %v", err)
	check(errors.Is(client.Add(&memcache.Item{Key: "long"}), memcache.ErrNotStored), "add of what is there")
	check(client.Replace(&memcache.Item{Key: "long", Value: []byte("5")}) == nil, "replace")
	count, err := client.Increment("long", 37)
	check(err == nil && count == 42, "incr: %d, %v", count, err)
	count, err = client.Decrement("long", 50)
	check(err == nil && count == 0, "decr: %d, %v", count, err)

	item, err = client.Get("long")
	check(err == nil, "gets: %v", err)
	item.Value = []byte("mine")
	check(client.Set(&memcache.Item{Key: "long", Value: []byte("other")}) == nil, "set")
	check(errors.Is(client.CompareAndSwap(item), memcache.ErrCASConflict), "cas after another set")
	check(client.Touch("long", 100) == nil, "touch")
	keys := make([]string, 0, 100)
	for number := range 100 {
		key := fmt.Sprint("k", number)
		keys = append(keys, key)
		check(client.Set(&memcache.Item{Key: key, Value: []byte(key)}) == nil, "set of %s", key)
	}
	items, err := client.GetMulti(append(keys, "none"))
	check(err == nil && len(items) == 100 && string(items["k7"].Value) == "k7", "get of many: %d, %v", len(items), err)
	check(client.Delete("long") == nil, "delete")
	check(errors.Is(client.Delete("long"), memcache.ErrCacheMiss), "delete of nothing")
	check(errors.Is(client.Set(&memcache.Item{Key: strings.Repeat("k", 251)}), memcache.ErrMalformedKey), "a long key")
	check(client.FlushAll() == nil, "flush_all")
	_, err = client.Get("k7")
	check(errors.Is(err, memcache.ErrCacheMiss), "get after flush_all: %v", err)
}
