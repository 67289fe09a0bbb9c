<?php
// A page that counts its visits in Redis.
header('Content-Type: text/plain');
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if ($path === '/healthz') {
	exit("ok\n");
}
$redis = new Redis();
try {
	$redis->connect(getenv('REDIS_HOST'), (int) (getenv('REDIS_SERVICE_PORT') ?: 6379), 1.0);
	$redis->auth(getenv('REDIS_PASSWORD'));
	$visits = $redis->incr('visits');
} catch (RedisException $e) {
	http_response_code(503);
	exit("no counter: {$e->getMessage()}\n");
}
if ($path === '/busy') {
	for ($x = 0.0001, $i = 0; $i < 300000; $i++) {
		$x += sqrt($x);
	}
}
echo getenv('GREETING'), ", you are visitor $visits of $path\n";
