// A server of HTTP/2 in clear by net/http: it prints its address. `/plaintext` and `/bytes/N` are those of `tidegate serve`,
// and `/echo` returns the body of the request.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
)

func main() {
	http.HandleFunc("/plaintext", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "Hello, World!")
	})
	http.HandleFunc("/bytes/{length}", func(w http.ResponseWriter, r *http.Request) {
		length, err := strconv.Atoi(r.PathValue("length"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		alphabet := []byte("abcdefghijklmnopqrstuvwxyz\n")
		w.Write(bytes.Repeat(alphabet, length/len(alphabet)+1)[:length])
	})
	http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Protocols: &protocols}
	fmt.Fprintln(os.Stderr, server.Serve(listener))
}
