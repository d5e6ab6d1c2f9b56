// A server of WebSockets by gorilla/websocket: /ws sends every message back, /chat/ws sends it to all connections.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"

	"github.com/gorilla/websocket"
)

// Messages that a slow member of the room may be behind by.
const roomMessagesMax = 64

var (
	upgrader = websocket.Upgrader{
		CheckOrigin:     func(*http.Request) bool { return true },
		WriteBufferPool: &sync.Pool{},
		ReadBufferSize:  4096,
		WriteBufferSize: 4096,
	}
	room    = map[chan *websocket.PreparedMessage]struct{}{}
	members sync.Mutex
)

func echo(response http.ResponseWriter, request *http.Request) {
	connection, err := upgrader.Upgrade(response, request, nil)
	if err != nil {
		return
	}
	defer connection.Close()
	for {
		kind, message, err := connection.ReadMessage()
		if err != nil || connection.WriteMessage(kind, message) != nil {
			return
		}
	}
}

func chat(response http.ResponseWriter, request *http.Request) {
	connection, err := upgrader.Upgrade(response, request, nil)
	if err != nil {
		return
	}
	defer connection.Close()
	messages := make(chan *websocket.PreparedMessage, roomMessagesMax)
	members.Lock()
	room[messages] = struct{}{}
	members.Unlock()
	defer func() {
		members.Lock()
		delete(room, messages)
		members.Unlock()
		close(messages)
	}()
	go func() {
		for message := range messages {
			if connection.WritePreparedMessage(message) != nil {
				connection.Close()
			}
		}
	}()
	for {
		kind, message, err := connection.ReadMessage()
		if err != nil {
			return
		}
		prepared, err := websocket.NewPreparedMessage(kind, message)
		if err != nil {
			return
		}
		members.Lock()
		for member := range room {
			select {
			case member <- prepared:
			default:
			}
		}
		members.Unlock()
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("listening on", listener.Addr())
	http.HandleFunc("/ws", echo)
	http.HandleFunc("/chat/ws", chat)
	panic(http.Serve(listener, nil))
}
