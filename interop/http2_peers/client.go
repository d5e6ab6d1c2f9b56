// Requests over HTTP/2 by net/http: `client URL`, with a certificate of any signer.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

const megabyte = 1_000_000

func letters(length int) []byte {
	alphabet := []byte("abcdefghijklmnopqrstuvwxyz\n")
	return bytes.Repeat(alphabet, length/len(alphabet)+1)[:length]
}

func expect(what string, is bool) {
	if !is {
		fmt.Fprintln(os.Stderr, what)
		os.Exit(1)
	}
}

func main() {
	url := os.Args[1]
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols:       &protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		MaxConnsPerHost: 1,
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	request := func(method, path string, body io.Reader) (*http.Response, []byte) {
		asked, err := http.NewRequest(method, url+path, body)
		expect(fmt.Sprint(method, path, err), err == nil)
		response, err := client.Do(asked)
		expect(fmt.Sprint(method, path, err), err == nil)
		content, err := io.ReadAll(response.Body)
		expect(fmt.Sprint(method, path, err), err == nil)
		response.Body.Close()
		return response, content
	}
	response, content := request("GET", "/plaintext", nil)
	expect("version", response.ProtoMajor == 2)
	expect("body", string(content) == "Hello, World!")
	_, content = request("GET", fmt.Sprintf("/bytes/%d", megabyte), nil)
	expect("large body", bytes.Equal(content, letters(megabyte)))
	response, content = request("HEAD", "/bytes/1000", nil)
	expect("HEAD", response.ContentLength == 1000 && len(content) == 0)
	sent := letters(megabyte)
	_, content = request("POST", "/echo", bytes.NewReader(sent))
	expect("echo", bytes.Equal(content, sent))
	// Without a length, so in pieces.
	_, content = request("POST", "/echo", io.MultiReader(bytes.NewReader(sent), bytes.NewReader(sent)))
	expect("echo in pieces", len(content) == 2*megabyte && bytes.Equal(content[megabyte:], sent))
	response, _ = request("GET", "/nowhere", nil)
	expect("missing", response.StatusCode == 404)
	var all sync.WaitGroup
	for range 300 {
		all.Go(func() {
			_, content := request("GET", "/bytes/1000", nil)
			expect("at once", bytes.Equal(content, letters(1000)))
		})
	}
	all.Wait()
	cancelled, cancel := context.WithCancel(context.Background())
	asked, _ := http.NewRequestWithContext(cancelled, "GET", fmt.Sprintf("%s/stream/%d", url, 100*megabyte), nil)
	response, err := client.Do(asked)
	expect("stream", err == nil)
	_, err = io.ReadFull(response.Body, make([]byte, 100_000))
	expect("stream", err == nil)
	cancel()
	_, content = request("GET", "/plaintext", nil)
	expect("after a response that was left", string(content) == "Hello, World!")
}
