// gnet as a peer: gnet 127.0.0.1:0
//
// gnet has no HTTP of its own. As in its own examples, heads are parsed by wildcat; bodies, pipelines and keep-alive are
// this file's. One event loop accepts and serves (SO_REUSEPORT, which spares gnet its accepting loop), on the one
// processor that Go may use, with gnet's `poll_opt` build as in its TechEmpower entry. All that one event brought is
// answered into one buffer and leaves with one write; no-delay and 64 KiB of read buffer for the loop are gnet's defaults.
//
// What a peer does not read gnet keeps, without a bound: it has no event that says when a peer reads again, so that
// there is nothing to wait for.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/evanphx/wildcat"
	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

const (
	bytesPrefix = "/bytes/"
	bodyMax     = 1 << 20
	// Beyond this the answers so far are written before the next request is looked at.
	outputMax = 64 << 10
	dateForm  = "Mon, 02 Jan 2006 15:04:05 GMT"
)

var (
	hello = []byte("Hello, World!")
	xs    = bytes.Repeat([]byte("x"), bodyMax)

	errRefused = errors.New("refused")
)

// site serves all connections from one loop, so they share its parser and its buffer.
type site struct {
	gnet.BuiltinEventEngine
	parser *wildcat.HTTPParser
	output []byte
	date   atomic.Pointer[string]
}

// request is what the head says about what follows it.
type request struct {
	bodyStart int
	bodyCount int
	closes    bool
}

func (s *site) OnBoot(engine gnet.Engine) gnet.Action {
	address, err := boundAddress(engine)
	if err != nil {
		log.Print(err)
		return gnet.Shutdown
	}
	s.renewDate()
	fmt.Println("listening on", address)
	return gnet.None
}

func (s *site) OnTick() (time.Duration, gnet.Action) {
	s.renewDate()
	return time.Second, gnet.None
}

func (s *site) renewDate() {
	date := time.Now().UTC().Format(dateForm)
	s.date.Store(&date)
}

func (s *site) OnTraffic(c gnet.Conn) gnet.Action {
	input, _ := c.Peek(-1)
	rest := input
	action := gnet.None
	for len(rest) > 0 && action == gnet.None {
		request, err := s.parse(rest)
		if err == wildcat.ErrMissingData || err == nil && len(rest)-request.bodyStart < request.bodyCount {
			break
		}
		if err != nil {
			s.head("400 Bad Request", "text/plain", 0)
			action = gnet.Close
			break
		}
		end := request.bodyStart + request.bodyCount
		s.answer(rest[request.bodyStart:end])
		rest = rest[end:]
		if request.closes {
			action = gnet.Close
		}
		if len(s.output) > outputMax {
			s.write(c)
		}
	}
	s.write(c)
	// To discard nothing means everything to gnet.
	if done := len(input) - len(rest); done > 0 {
		_, _ = c.Discard(done)
	}
	return action
}

func (s *site) write(c gnet.Conn) {
	if len(s.output) > 0 {
		_, _ = c.Write(s.output)
		s.output = s.output[:0]
	}
}

// parse reads one head. wildcat leaves the headers of the last one behind, so they are cleared first.
func (s *site) parse(input []byte) (request, error) {
	clear(s.parser.Headers)
	start, err := s.parser.Parse(input)
	if err != nil {
		return request{}, err
	}
	result := request{bodyStart: start}
	for _, header := range s.parser.Headers {
		if header.Name == nil {
			break
		}
		switch len(header.Name) {
		case len("Connection"):
			if bytes.EqualFold(header.Name, []byte("Connection")) {
				result.closes = bytes.EqualFold(header.Value, []byte("close"))
			}
		case len("Content-Length"):
			if bytes.EqualFold(header.Name, []byte("Content-Length")) {
				count, err := strconv.ParseUint(string(header.Value), 10, 31)
				if err != nil || count > bodyMax {
					return result, errRefused
				}
				result.bodyCount = int(count)
			}
		case len("Transfer-Encoding"):
			if bytes.EqualFold(header.Name, []byte("Transfer-Encoding")) {
				return result, errRefused
			}
		}
	}
	return result, nil
}

func (s *site) answer(body []byte) {
	path := s.parser.Path
	switch {
	case string(path) == "/plaintext":
		s.head("200 OK", "text/plain", len(hello))
		s.output = append(s.output, hello...)
	case string(path) == "/echo" && s.parser.Post():
		s.octets(body)
	case string(path) == "/heap":
		s.octets(strconv.AppendUint(nil, liveHeap(), 10))
	default:
		if count, ok := bytesCount(path); ok {
			s.octets(xs[:count])
		} else {
			s.head("404 Not Found", "text/plain", 0)
		}
	}
}

func (s *site) octets(body []byte) {
	s.head("200 OK", "application/octet-stream", len(body))
	s.output = append(s.output, body...)
}

func (s *site) head(status, contentType string, contentLength int) {
	s.output = append(s.output, "HTTP/1.1 "...)
	s.output = append(s.output, status...)
	s.output = append(s.output, "\r\nServer: gnet\r\nContent-Type: "...)
	s.output = append(s.output, contentType...)
	s.output = append(s.output, "\r\nDate: "...)
	s.output = append(s.output, *s.date.Load()...)
	s.output = append(s.output, "\r\nContent-Length: "...)
	s.output = strconv.AppendInt(s.output, int64(contentLength), 10)
	s.output = append(s.output, "\r\n\r\n"...)
}

func bytesCount(path []byte) (int, bool) {
	number, found := bytes.CutPrefix(path, []byte(bytesPrefix))
	if !found {
		return 0, false
	}
	count, err := strconv.ParseUint(string(number), 10, 31)
	return int(count), err == nil && count <= bodyMax
}

// liveHeap returns the bytes that are live after a collection, and the stacks in use. A pool releases its content in the
// second collection.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// boundAddress asks the listener's descriptor, since gnet does not tell which port it was given.
func boundAddress(engine gnet.Engine) (string, error) {
	descriptor, err := engine.Dup()
	if err != nil {
		return "", err
	}
	defer syscall.Close(descriptor)
	name, err := syscall.Getsockname(descriptor)
	if err != nil {
		return "", err
	}
	address, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return "", errors.New("not an IPv4 address")
	}
	return fmt.Sprintf("127.0.0.1:%d", address.Port), nil
}

func main() {
	runtime.GOMAXPROCS(1)
	log.Fatal(gnet.Run(&site{parser: wildcat.NewHTTPParser()}, "tcp4://"+os.Args[1],
		gnet.WithNumEventLoop(1),
		gnet.WithReusePort(true),
		gnet.WithTicker(true),
		gnet.WithLogLevel(logging.ErrorLevel)))
}
