package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"monopod/apiserver/admin"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/status"
)

type dashboardOptions struct {
	local.Place
	view, print bool
}

// dashboardCommand is `monopod dashboard`, which opens the page signed in. dataDir is the default of --data-dir.
func dashboardCommand(dataDir string) *cobra.Command {
	c := &dashboardOptions{Place: local.Place{DataDir: dataDir}}
	cmd := &cobra.Command{
		Use:     "dashboard",
		GroupID: Look,
		Short:   "Open the web page signed in, or print an address that signs in once",
		Long: "dashboard asks a running monopod, with the rights of an admin, for an address that signs a browser in, as\n" +
			"an admin or with --view with the view token. The address works once, within a minute. On a desktop the\n" +
			"browser opens it; elsewhere, type or copy it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&c.view, "view", false,
		"Sign in with the view token, which may change nothing and sees no Secrets.")
	cmd.Flags().BoolVar(&c.print, "print", false, "Only print the address.")
	return cmd
}

func (c *dashboardOptions) run(cmd *cobra.Command) error {
	server, err := c.Open()
	if err != nil {
		return err
	}
	path, err := c.loginPath(cmd.Context(), server)
	if err != nil {
		return err
	}
	var about status.Process
	if err := server.JSON(cmd.Context(), status.Path, &about); err != nil {
		return err
	}
	address := server.URL + path
	if server.Local() {
		address = about.Address + path
	}
	fmt.Fprintln(cmd.OutOrStdout(), address)
	if c.print {
		return nil
	}
	if opener := opener(); opener != "" {
		return exec.CommandContext(cmd.Context(), opener, address).Run()
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(),
		"Open it in a browser within a minute; it works once. The browser warns once of the certificate, which is\n"+
			"monopod's own: accept it, or trust its authority, %s/pki/ca.crt on %s.\n", about.DataDir, about.Node)
	return err
}

// loginPath requests a code and returns the page's path with it. The code is behind the #, which browsers do not send.
func (c *dashboardOptions) loginPath(ctx context.Context, server *local.Server) (string, error) {
	path := admin.Path
	if c.view {
		path += "?view=true"
	}
	resp, err := server.Do(ctx, http.MethodPost, path, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer admin.Answer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", err
	}
	return "/#login=" + answer.Code, nil
}

// opener returns the program that opens addresses on a desktop; empty: there is none.
func opener() string {
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return ""
	}
	path, err := exec.LookPath("xdg-open")
	if err != nil {
		return ""
	}
	return path
}
