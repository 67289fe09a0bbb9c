package route_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"monopod/agent/network/ingress/route"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]route.Options{
		"":                                           {Redirect: true, MaxBody: 7, Wait: time.Second},
		"ssl-redirect=false":                         {MaxBody: 7, Wait: time.Second},
		"ssl-redirect=no":                            {Redirect: true, MaxBody: 7, Wait: time.Second},
		"proxy-body-size=8m":                         {Redirect: true, MaxBody: 8 << 20, Wait: time.Second},
		"proxy-body-size=1g":                         {Redirect: true, MaxBody: 1 << 30, Wait: time.Second},
		"proxy-body-size=10K":                        {Redirect: true, MaxBody: 10 << 10, Wait: time.Second},
		"proxy-body-size=5Mi":                        {Redirect: true, MaxBody: 5 << 20, Wait: time.Second},
		"proxy-body-size=100":                        {Redirect: true, MaxBody: 100, Wait: time.Second},
		"proxy-body-size=0":                          {Redirect: true, Wait: time.Second},
		"proxy-body-size=-1":                         {Redirect: true, MaxBody: 7, Wait: time.Second},
		"proxy-body-size=":                           {Redirect: true, MaxBody: 7, Wait: time.Second},
		"proxy-body-size=99999999999999g":            {Redirect: true, MaxBody: 7, Wait: time.Second},
		"proxy-read-timeout=5":                       {Redirect: true, MaxBody: 7, Wait: 5 * time.Second},
		"proxy-read-timeout=5s":                      {Redirect: true, MaxBody: 7, Wait: 5 * time.Second},
		"proxy-read-timeout=0":                       {Redirect: true, MaxBody: 7, Wait: time.Second},
		"proxy-read-timeout=999999999":               {Redirect: true, MaxBody: 7, Wait: 24 * time.Hour},
		"backend-protocol=https":                     {Redirect: true, MaxBody: 7, Wait: time.Second, Protocol: "HTTPS"},
		"backend-protocol=FCGI":                      {Redirect: true, MaxBody: 7, Wait: time.Second},
		"force-ssl-redirect=true":                    {Redirect: true, Forced: true, MaxBody: 7, Wait: time.Second},
		"ssl-redirect=false nginx/ssl-redirect=true": {MaxBody: 7, Wait: time.Second},
		"nginx/proxy-body-size=1k nginx/backend-protocol=H2": {Redirect: true, MaxBody: 1 << 10, Wait: time.Second},
	} {
		annotations := map[string]string{}
		for _, field := range strings.Fields(text) {
			name, value, _ := strings.Cut(field, "=")
			if rest, nginx := strings.CutPrefix(name, "nginx/"); nginx {
				annotations[route.NginxPrefix+rest] = value
			} else {
				annotations[route.OwnPrefix+name] = value
			}
		}
		if got, _ := route.ParseAnnotations(annotations, route.Options{Redirect: true, MaxBody: 7,
			Wait: time.Second}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
