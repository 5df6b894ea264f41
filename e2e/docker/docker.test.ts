/**
 * Docker and Docker Compose in a sandbox, with the kernel that every sandbox has: containers, builds, services that find
 * each other by name, published ports, the network policy, and copies of a sandbox whose containers run.
 */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { DockerGuest } from '../fixtures/docker/docker-guest.ts';
import type { AuditEntry } from '../fixtures/egress/egress-guest.ts';
import { useEgress, type Egress } from '../fixtures/egress/egress-shared.ts';
import { PLACES } from '../fixtures/internet/zone.ts';

const TIMEOUT_MS = 240_000;
/** The image may have to be built. */
const PREPARATION_TIMEOUT_MS = 600_000;
const PUBLISHED_PORT = 8080;
/** The web server's port in its container. */
const WEB_PORT = 8000;

const COMPOSE_FILE = `version: "3"
services:
  web:
    image: box:1
    command: ["sh", "-c", "mkdir /www; echo web in $$(hostname) > /www/index.html; exec httpd -f -p ${WEB_PORT} -h /www"]
    hostname: web-container
    ports: ["${PUBLISHED_PORT}:${WEB_PORT}"]
  asker:
    image: box:1
    command: ["sh", "-c", "until wget -q -O /answer http://web:${WEB_PORT}/; do sleep 1; done; exec sleep 100000"]
`;
const PAGE = 'web in web-container\n';

describe('Docker in a sandbox', () => {
  const resources = new AsyncDisposableStack();
  const egress = useEgress(resources);
  let all: Egress;
  let guest: DockerGuest;

  before(
    async () => {
      all = await egress();
      guest = resources.use(await DockerGuest.create(all.api));
    },
    { timeout: PREPARATION_TIMEOUT_MS },
  );

  it('runs the engine with overlay2 and control groups of version 2', { timeout: TIMEOUT_MS }, async () => {
    const info = await guest.read(`docker info --format '{{.Driver}} {{.CgroupVersion}}'`);
    assert.equal(info, 'overlay2 2');
    assert.equal(
      await guest.read('stat -f -c %T /var/lib/docker /run/coppice/scratch'),
      'ext2/ext3\next2/ext3',
    );
  });

  it('has a directory for engines that keep layers elsewhere, on which overlays can be made', async () => {
    const overlay = 'mount -t overlay -o lowerdir=/etc,upperdir=upper,workdir=work overlay merged';
    const steps = [
      'cd /run/coppice/scratch',
      'mkdir upper work merged',
      overlay,
      'echo x > merged/new',
      'umount merged',
    ];
    await guest.read(steps.join(' && '));
    assert.equal(await guest.read('cat /run/coppice/scratch/upper/new'), 'x');
  });

  it('loads no module that nothing has asked for, and none at all that is not offered', async () => {
    const loaded = await guest.read(`awk '{ print $1 }' /proc/modules`);
    assert.match(loaded, /^bridge$/mu);
    assert.doesNotMatch(loaded, /^(?:ipvlan|macvlan|ip6table_raw)$/mu);
    const { exit_code: code, stderr } = await all.api.exec(guest.id, '/run/coppice/modprobe -q -- sctp');
    assert.equal(code, 1);
    assert.match(stderr, /no module sctp/u);
    await guest.read('/run/coppice/modprobe dummy && grep -q ^dummy /proc/modules');
  });

  it('builds an image and runs it within limits', { timeout: TIMEOUT_MS }, async () => {
    await guest.read(
      `mkdir -p /srv/build && cd /srv/build && printf 'FROM box:1\\nRUN echo built > /built\\nCMD ["cat", "/built"]\\n' > Dockerfile && docker build -q -t built:1 .`,
    );
    assert.equal(
      await guest.read('docker run --rm --memory 64m --cpus 0.5 --pids-limit 50 built:1'),
      'built',
    );
    const limits = 'cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max';
    assert.equal(
      await guest.read(`docker run --rm --memory 64m --pids-limit 50 box:1 sh -c '${limits}'`),
      `${64 * 2 ** 20}\n50`,
    );
  });

  it(
    'lets containers reach what the policy allows, by name, and nothing else',
    { timeout: TIMEOUT_MS },
    async () => {
      await guest.egress.putNetwork({ network: { allow: ['allowed.example'] } });
      await all.internet.forget();
      const get = (host: string) => `docker run --rm box:1 wget -q -O /dev/null http://${host}/ 2>&1`;
      await guest.read(get('allowed.example'));
      for (const host of ['denied.example', PLACES.denied]) {
        const { exit_code: code } = await all.api.exec(guest.id, get(host), { timeout: 60 });
        assert.equal(code, 1, host);
      }
      const seen = await all.internet.seen();
      assert.deepEqual(
        seen.filter(({ at, kind }) => at === PLACES.denied && kind !== 'dns'),
        [],
      );
      const isNoted = ({ event, data }: AuditEntry, ip: string): boolean =>
        event === 'network.blocked' && data['ip'] === ip;
      assert.deepEqual(await guest.egress.findUntold([PLACES.denied], 0, isNoted), []);
    },
  );

  it(
    'starts services that find each other by name, and shows a published port',
    { timeout: TIMEOUT_MS },
    async () => {
      await guest.write('/srv/app/docker-compose.yml', COMPOSE_FILE);
      await guest.read('cd /srv/app && docker-compose up -d 2>&1');
      await guest.await('docker exec app_asker_1 cat /answer', PAGE.trimEnd());
      assert.equal(await guest.port(PUBLISHED_PORT).get('/'), PAGE);
    },
  );

  it('keeps containers running in forks, each with its own', { timeout: TIMEOUT_MS }, async () => {
    const [child] = await all.clones.fork(guest.id, 1);
    assert.ok(child !== undefined);
    await using copy = new DockerGuest(all.api, child.id);
    assert.equal(await copy.port(PUBLISHED_PORT).get('/'), PAGE);
    await copy.read('docker exec app_web_1 sh -c "echo child > /www/index.html"');
    assert.equal(await copy.port(PUBLISHED_PORT).get('/'), 'child\n');
    assert.equal(await guest.port(PUBLISHED_PORT).get('/'), PAGE);
    await copy.read('docker exec app_asker_1 wget -q -O /dev/null http://allowed.example/');
  });

  it('keeps containers over hibernation', { timeout: TIMEOUT_MS }, async () => {
    await all.clones.hibernate(guest.id);
    await all.clones.resume(guest.id);
    assert.equal(await guest.port(PUBLISHED_PORT).get('/'), PAGE);
    await guest.read(`docker exec app_asker_1 wget -q -O /dev/null http://web:${WEB_PORT}/`);
    await guest.read('docker exec app_asker_1 wget -q -O /dev/null http://allowed.example/');
    assert.equal(await guest.read('docker run --rm built:1'), 'built');
  });
});
