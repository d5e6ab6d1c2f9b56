// fasthttp as a peer: fasthttp 127.0.0.1:0 [lean]
//
// It follows fasthttp's TechEmpower entry: one process without prefork, header names as they came, buffers of the
// default 4 KiB, a handler that allocates nothing and copies no body. Answers leave when the read buffer is empty. One
// processor, so that all goroutines share the core that the server is pinned to; Go sets no-delay on every connection.
//
// `lean` sets ReduceMemoryUsage: a connection that waits gives its buffers back. Loads are left out for it, since each
// answer of a pipeline then leaves by itself: it is there for memory alone.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"runtime"
	"strconv"

	"github.com/valyala/fasthttp"
)

const (
	bytesPrefix = "/bytes/"
	bytesMax    = 1 << 20
)

var (
	hello = []byte("Hello, World!")
	bytes = make([]byte, bytesMax)
)

func handle(ctx *fasthttp.RequestCtx) {
	// Conversions in comparisons allocate nothing.
	path := ctx.Path()
	switch {
	case string(path) == "/plaintext":
		ctx.SetContentType("text/plain")
		ctx.Response.SetBodyRaw(hello)
	case string(path) == "/echo" && ctx.IsPost():
		ctx.SetContentType("application/octet-stream")
		// The request outlives its answer, so its body need not be copied.
		ctx.Response.SetBodyRaw(ctx.PostBody())
	case string(path) == "/heap":
		ctx.SetBodyString(strconv.FormatUint(liveHeap(), 10))
	default:
		if count, ok := bytesCount(path); ok {
			ctx.SetContentType("application/octet-stream")
			ctx.Response.SetBodyRaw(bytes[:count])
			return
		}
		ctx.SetStatusCode(fasthttp.StatusNotFound)
	}
}

func bytesCount(path []byte) (int, bool) {
	if len(path) <= len(bytesPrefix) || string(path[:len(bytesPrefix)]) != bytesPrefix {
		return 0, false
	}
	count, err := fasthttp.ParseUint(path[len(bytesPrefix):])
	return count, err == nil && count <= bytesMax
}

// liveHeap returns the bytes that are live after a collection, and the stacks in use: a connection costs the stack of a
// goroutine.
// A pool lets go of what it holds in the second collection.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

func main() {
	runtime.GOMAXPROCS(1)
	for i := range bytes {
		bytes[i] = 'x'
	}
	listener, err := net.Listen("tcp4", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	server := &fasthttp.Server{
		Name:                          "fasthttp",
		Handler:                       handle,
		DisableHeaderNamesNormalizing: true,
		ReduceMemoryUsage:             len(os.Args) > 2 && os.Args[2] == "lean",
	}
	log.Fatal(server.Serve(listener))
}
