package join

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	"monopod/apiserver/kit/nodetunnel"
)

// Leave deletes the Node of the machine that has joined with the data folder, and returns its name.
func Leave(ctx context.Context, dataDir string) (node string, err error) {
	f := folderIn(dataDir)
	name, err := os.ReadFile(f.path(nameFile))
	if err != nil {
		return "", err
	}
	node = strings.TrimSpace(string(name))
	i, err := f.open()
	if err != nil {
		return node, err
	}
	to := transport(i.TLS())
	defer to.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, i.Servers()[0]+nodetunnel.Path, nil)
	if err != nil {
		return node, err
	}
	resp, err := (&servers{identity: i, to: to}).RoundTrip(req)
	if err != nil {
		return node, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // a part of it is enough
		return node, errors.New(resp.Status + ": " + strings.TrimSpace(string(text)))
	}
	return node, nil
}
