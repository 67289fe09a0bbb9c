package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"
)

// protocols are valid and invalid stream protocols for WebSockets and SPDY.
var protocols = []string{
	"v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io",
	"v4.base64.channel.k8s.io", "base64.channel.k8s.io",
	"binary.k8s.io", "base64.binary.k8s.io", "SPDY/3.1+portforward.k8s.io", "portforward.k8s.io", "", "x",
	"v5.channel.k8s.io, channel.k8s.io", "base64url.bearer.authorization.k8s.io.eA",
}

// streams are paths of watches, and of the pods' streaming subresources.
var streams = []string{
	"/pods?watch=1", "/configmaps?watch=true",
	"/configmaps?watch=true&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
	"/pods/target/exec?command=cat&stdin=1&stdout=1&stderr=1", "/pods/target/exec?command=cat&stdin=1&stdout=1&tty=1",
	"/pods/target/exec?command=echo&command=x&stdout=1", "/pods/target/exec?command=sleep&command=1s&stdout=1&stdin=1",
	"/pods/target/exec?command=none&stdout=1", "/pods/target/exec", "/pods/target/attach?stdin=1&stdout=1&stderr=1",
	"/pods/target/attach?stdout=1&container=x", "/pods/target/portforward?ports=8080",
	"/pods/target/portforward?ports=8080&ports=1&ports=70000",
	"/pods/target/portforward", "/pods/target/log?follow=1",
	"/pods/target/log?follow=1&tailLines=1&timestamps=1&limitBytes=1", "/pods/target/log?stream=Stderr&tailLines=-1",
	"/pods/target/proxy/", "/pods/none/exec?command=x", "/pods/a/attach?stdout=1",
}

// running creates the target pod of the streams, in case another request has deleted it.
func (a *abuser) running(ctx context.Context) {
	a.send(ctx, a.users[0], "POST", nsPath+"/pods", "application/json",
		[]byte(`{"metadata":{"name":"target"},"spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"c",`+
			`"image":"monopod.local/web:1","stdin":true}]}}`))
}

// upgrade opens a WebSocket or SPDY connection, sends random frames, and closes it.
func (a *abuser) upgrade(ctx context.Context) {
	if a.rand.IntN(5) == 0 {
		a.running(ctx)
	}
	conn, err := a.dial(ctx)
	if err != nil {
		a.heard.dropped()
		return
	}
	defer conn.Close()
	u, path := one(a, a.users[0], a.user()), nsPath+one(a, streams...)
	key := base64.StdEncoding.EncodeToString([]byte("sixteen bytes!!!"))
	protocol := ""
	if p := one(a, protocols...); p != "" {
		protocol = "Sec-WebSocket-Protocol: " + p + "\r\nX-Stream-Protocol-Version: " + p + "\r\n"
	}
	fmt.Fprintf(conn,
		"%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n%s\r\n",
		one(a, "GET", "GET", "POST"), path, u.token, one(a, "websocket", "websocket", "websocket", "SPDY/3.1", "x"), key,
		protocol)
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if err != nil {
		a.heard.dropped()
		return
	}
	var version string
	var code int
	if _, err := fmt.Sscanf(string(answer[:n]), "%s %d", &version, &code); err != nil {
		code = 0 // not an HTTP response
	}
	a.heard.add("upgrade of "+path, code, string(answer[:n]))
	for range a.rand.IntN(20) {
		if _, err := conn.Write(a.frame()); err != nil {
			return
		}
	}
	if conn.SetDeadline(time.Now().Add(time.Duration(a.rand.IntN(500))*time.Millisecond)) == nil && a.rand.IntN(2) == 0 {
		for err == nil { // read until the server closes the connection
			_, err = conn.Read(answer)
		}
	}
}

// frame returns a random WebSocket frame, which may be invalid, or random bytes.
func (a *abuser) frame() []byte {
	payload := make([]byte, one(a, 0, 1, 10, 125, 126, 4096, 70_000))
	for i := range payload {
		payload[i] = byte(a.rand.Uint32())
	}
	if a.rand.IntN(8) == 0 {
		return payload
	}
	if len(payload) > 0 && a.rand.IntN(4) > 0 {
		payload[0] = one[byte](a, 0, 0, 0, 1, 3, 4, 255, '0', '4') // the channel
		if a.rand.IntN(4) == 0 {
			payload = append(payload[:1], one(a, `{"Width":80,"Height":-1}`, "/w==", "\x00\x50", "{")...)
		}
	}
	head := []byte{one[byte](a, 0x82, 0x82, 0x81, 0x02, 0x80, 0x88, 0x89, 0x8a, 0xf2, 0x83), 0x80}
	length := uint64(len(payload))
	if a.rand.IntN(20) == 0 {
		length = one[uint64](a, 1<<20, 1<<40, 1<<63)
	}
	switch {
	case length < 126:
		head[1] |= byte(length)
	case length < 1<<16:
		head[1] |= 126
		head = binary.BigEndian.AppendUint16(head, uint16(length))
	default:
		head[1] |= 127
		head = binary.BigEndian.AppendUint64(head, length)
	}
	if a.rand.IntN(10) == 0 {
		head[1] &^= 0x80 // not masked
		return append(head, payload...)
	}
	return append(append(head, 0, 0, 0, 0), payload...)
}
