package program

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"time"
)

// pages handles the paths for probes; all other paths return the greeting.
func (r *run) pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", r.answer)
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, req *http.Request) {
		code, err := strconv.Atoi(req.PathValue("code"))
		if err != nil || code < 200 || code > 599 {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("/file/{name...}", func(w http.ResponseWriter, req *http.Request) {
		data, err := r.System.ReadFile("/" + req.PathValue("name"))
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
		}
		w.Write(data)
	})
	mux.HandleFunc("/header/{name}/{value}", func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get(req.PathValue("name")) != req.PathValue("value") {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	mux.HandleFunc("POST /grpc.health.v1.Health/Check", serving)
	return mux
}

// serving is gRPC's response to a health check: a message of two bytes, the field status with the value SERVING,
// and a trailer with status 0.
func serving(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	w.Write([]byte{0, 0, 0, 0, 2, 0x08, 0x01})
	w.Header().Set("Grpc-Status", "0")
}

// protocols include HTTP/2 without TLS, for gRPC.
func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// secured returns a TLS listener over l with a new self-signed certificate.
func secured(l net.Listener) (net.Listener, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l,
		&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}), nil
}
