// Package etcd is a store.Store on etcd, for installations with several servers.
//
// Keys and values are those of a kube-apiserver: /registry/pods/default/web holds the
// pod's JSON without a resourceVersion, which is the revision of the key's last
// change. A kube-apiserver can use the same etcd unchanged; its values, in JSON or
// protobuf, are read here.
//
// Get and List always read from etcd, so they return the writes of all servers; decoded values are cached. Update is a
// transaction on the revision of the object that its Change got. Watches of a resource share one watch of etcd and a
// bounded history.
//
// Nothing is volatile: leases and heartbeats are written to etcd like everything else, because other servers must read
// them. Resources with a TTL (events) are attached to leases of etcd and expire with them.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"monopod/store"
)

const (
	// requestTimeout is the timeout of a request to etcd.
	requestTimeout = 10 * time.Second
	// keepAlive and keepAliveTimeout detect a dead connection (upstream: storagebackend/factory).
	keepAlive        = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// Config of a Store. Kind and Endpoints are required.
type Config struct {
	store.Config
	Endpoints []string // from the function Endpoints
	TLS       TLS
	// TTL is the time after its last change when an object of a resource expires. Objects of resources that are not in the
	// map do not expire.
	TTL map[string]time.Duration
	// CompactionInterval is the interval of compaction; 0: 5 min (upstream: --etcd-compaction-interval), negative: never.
	CompactionInterval time.Duration
	// DecodedBytes is the maximum size of the cache of decoded objects, as JSON; 0: 32 MiB.
	DecodedBytes int

	Clock clock.WithTicker // nil: the real one
	Log   *zap.Logger      // nil: silent
}

// TLS contains the values of kube-apiserver's --etcd-cafile, --etcd-certfile and --etcd-keyfile.
type TLS struct{ CAFile, CertFile, KeyFile string }

// Store is a store.Store on etcd.
type Store struct {
	cfg    Config
	client *clientv3.Client
	cache  *entryCache
	leases leases

	stop      context.CancelFunc
	stopped   context.Context
	running   sync.WaitGroup // hubs and the compactor
	closeOnce func() error
	newest    atomic.Int64 // highest revision in a response of etcd

	mu   sync.Mutex // guards hubs
	hubs map[string]*hub
}

var _ store.Store = (*Store)(nil)

// Endpoints parses etcd://host:port[,host:port…], or the same with http or https;
// etcd:// means https if there are TLS files. unix:///path is a socket.
func Endpoints(url string, files TLS) ([]string, error) {
	scheme, hosts, _ := strings.Cut(url, "://")
	switch scheme {
	case "unix":
		return []string{url}, nil
	case "etcd":
		scheme = "http"
		if files != (TLS{}) {
			scheme = "https"
		}
	case "http", "https":
	default:
		return nil, fmt.Errorf("%q does not begin with etcd://, https:// or http://", url)
	}
	var out []string
	for host := range strings.SplitSeq(strings.TrimSuffix(hosts, "/"), ",") {
		host = strings.TrimPrefix(host, scheme+"://") // as in --etcd-servers
		if host == "" || strings.Contains(host, "/") {
			return nil, fmt.Errorf("%q is not of the form etcd://host:port[,host:port]", url)
		}
		out = append(out, scheme+"://"+host)
	}
	return out, nil
}

// Open connects to etcd, which must answer. The caller calls Close.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.History = cmp.Or(cfg.History, 4096)
	cfg.DecodedBytes = cmp.Or(cfg.DecodedBytes, 32<<20)
	cfg.CompactionInterval = cmp.Or(cfg.CompactionInterval, 5*time.Minute)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	client, err := connect(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s := &Store{cfg: cfg, client: client, hubs: map[string]*hub{}}
	s.cache = &entryCache{max: cfg.DecodedBytes, entries: map[store.Key]*store.Entry{}}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.leases = leases{client: client, clock: cfg.Clock}
	s.closeOnce = sync.OnceValue(s.close)
	if err := s.ping(ctx); err != nil {
		return nil, errors.Join(
			fmt.Errorf("etcd at %s: %w; check that it runs there, and the address", strings.Join(cfg.Endpoints, ", "), err),
			s.Close())
	}
	s.running.Go(func() { s.compactor(s.stopped) })
	return s, nil
}

func connect(cfg Config) (*clientv3.Client, error) {
	c := clientv3.Config{
		Endpoints:            cfg.Endpoints,
		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAliveTimeout,
		Logger:               cfg.Log,
	}
	if strings.HasPrefix(cfg.Endpoints[0], "https://") {
		info := transport.TLSInfo{TrustedCAFile: cfg.TLS.CAFile, CertFile: cfg.TLS.CertFile, KeyFile: cfg.TLS.KeyFile}
		var err error
		if c.TLS, err = info.ClientConfig(); err != nil {
			return nil, err
		}
	}
	return clientv3.New(c)
}

// ping reads the newest revision.
func (s *Store) ping(ctx context.Context) error {
	ctx, done, err := s.request(ctx)
	if err != nil {
		return err
	}
	defer done()
	resp, err := s.client.Get(ctx, store.PathPrefix)
	if err != nil {
		return translate(err)
	}
	s.observe(resp.Header.Revision)
	return nil
}

// request returns the context of a request; the caller must call done. It returns ErrClosed after Close.
func (s *Store) request(ctx context.Context) (_ context.Context, done func(), err error) {
	if s.stopped.Err() != nil {
		return nil, nil, store.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	unhook := context.AfterFunc(s.stopped, cancel)
	return ctx, func() { unhook(); cancel() }, nil
}

// agreedPrefix is the prefix of the keys of Agree, outside those of a kube-apiserver.
const agreedPrefix = "/monopod/"

// Agree returns the value that the first server on this etcd stored under the name. If this server is the first, it
// stores and returns mine.
func (s *Store) Agree(ctx context.Context, name string, mine []byte) ([]byte, error) {
	ctx, done, err := s.request(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	key := agreedPrefix + name
	read, err := s.client.Get(ctx, key) // because a full etcd rejects transactions that might write
	if err != nil {
		return nil, translate(err)
	}
	if len(read.Kvs) > 0 {
		return read.Kvs[0].Value, nil
	}
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(mine))).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return nil, translate(err)
	}
	if resp.Succeeded {
		return mine, nil
	}
	return resp.Responses[0].GetResponseRange().Kvs[0].Value, nil
}

// Revision implements store.Store. It returns the newest revision that etcd has sent to this process.
func (s *Store) Revision() int64 { return s.newest.Load() }

func (s *Store) observe(rev int64) {
	for {
		old := s.newest.Load()
		if rev <= old || s.newest.CompareAndSwap(old, rev) {
			return
		}
	}
}

// Close implements store.Store.
func (s *Store) Close() error { return s.closeOnce() }

func (s *Store) close() error {
	s.stop()
	s.mu.Lock() // so that no hub starts
	defer s.mu.Unlock()
	s.running.Wait()
	return s.client.Close()
}

// Verify is for tests. It checks that no shared object was modified.
func (s *Store) Verify() error { return s.cache.verify() }

// translate maps an error of etcd to the store's errors.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("%w: %w", store.ErrExpired, err)
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: %w", store.ErrFuture, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w, etcd is over its quota, compact and defragment it, then disarm its alarm: %w",
			store.ErrNoSpace, err)
	case unavailable(err):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// unavailable reports whether etcd could not be reached, or did not answer in time.
func unavailable(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code() == codes.Unavailable
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}
