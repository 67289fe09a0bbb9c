package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"
)

// adversary is the server that configurations name: a webhook for admission and conversion, and an aggregated API
// server. The path or the API group of a request selects its manner.
type adversary struct {
	url, port string
	ca        []byte // PEM
	close     func()
}

// manners are the adversary's kinds of behavior.
var manners = []string{"good", "good", "slow", "trickle", "huge", "deep", "wrong", "renamed", "none", "garbage",
	"hangup", "failing", "redirect", "headers"}

// patience is the duration of a slow answer.
const patience = 2 * time.Second

func newAdversary() (*adversary, error) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(adverse))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // no log of aborted handlers
	s.StartTLS()
	u, err := url.Parse(s.URL)
	if err != nil {
		s.Close()
		return nil, err
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &adversary{url: s.URL, port: u.Port(), ca: ca, close: s.Close}, nil
}

// adverse answers in a manner: the first element of the path, or the API group up to its first hyphen.
func adverse(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	manner := parts[0]
	if manner == "apis" && len(parts) > 1 {
		manner, _, _ = strings.Cut(parts[1], "-")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		return
	}
	answer := answered(body, manner)
	w.Header().Set("Content-Type", "application/json")
	switch manner {
	case "slow":
		wait(r, patience)
	case "trickle":
		for range 20 {
			fmt.Fprint(w, " ")
			_ = http.NewResponseController(w).Flush() // wait detects a closed connection
			wait(r, patience/20)
		}
	case "huge":
		answer = bytes.Repeat([]byte("["), 12<<20)
	case "deep":
		answer = []byte(strings.Repeat(`{"response":`, 9000) + "1" + strings.Repeat("}", 9000))
	case "none":
		answer = nil
	case "garbage":
		answer = []byte("\x00\xff{")
	case "hangup":
		panic(http.ErrAbortHandler)
	case "failing":
		w.WriteHeader(http.StatusInternalServerError)
	case "redirect":
		http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	case "headers":
		for n := range 1000 {
			w.Header().Set(fmt.Sprintf("Warning-%d", n), strings.Repeat("x", 1000))
		}
	}
	_, _ = w.Write(answer)
}

func wait(r *http.Request, d time.Duration) {
	select {
	case <-r.Context().Done():
	case <-time.After(d):
	}
}

// answered returns the answer to a review: an admission with a patch, or the converted objects. The answer to any other
// request is an empty list.
func answered(body []byte, manner string) []byte {
	var review struct {
		APIVersion, Kind string
		Request          struct {
			UID               string
			DesiredAPIVersion string
			Objects           []map[string]any
		}
	}
	if json.Unmarshal(body, &review) != nil || review.Request.UID == "" {
		return []byte(`{"kind":"ThingList","apiVersion":"x/v1","items":[]}`)
	}
	response := map[string]any{"uid": review.Request.UID}
	if strings.HasPrefix(review.Kind, "Conversion") {
		response["result"], response["convertedObjects"] = map[string]any{"status": "Success"},
			converted(review.Request.Objects, review.Request.DesiredAPIVersion, manner)
	} else {
		response["allowed"] = true
		if manner != "good" || len(body)%2 == 0 {
			response["patchType"] = "JSONPatch"
			response["patch"] = []byte(`[{"op":"add","path":"/metadata/annotations","value":{"a":"` +
				strings.Repeat("x", len(body)%5000) + `"}}]`)
		}
		if manner == "wrong" {
			response["patch"] = []byte(`[{"op":"replace","path":"","value":[]}]`)
		}
		response["warnings"] = []string{strings.Repeat("w", 5000), "\x00\n"}
	}
	out, err := json.Marshal(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": response})
	if err != nil {
		return nil
	}
	return out
}

// converted sets the version of objects. In the manners "renamed" and "wrong" it makes invalid changes too.
func converted(objects []map[string]any, version, manner string) []map[string]any {
	for i, o := range objects {
		o["apiVersion"] = version
		meta, ok := o["metadata"].(map[string]any)
		switch {
		case manner == "renamed" && ok:
			meta["name"], meta["uid"] = fmt.Sprintf("renamed-%d", i), "x"
		case manner == "wrong":
			o["apiVersion"], o["metadata"] = "other/v7", []any{nil}
		}
	}
	if manner == "wrong" && len(objects) > 1 {
		return objects[1:]
	}
	return objects
}
