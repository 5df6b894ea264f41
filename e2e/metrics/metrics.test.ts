/** The work of a real virtual machine shows in its metrics, and in those of the service. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import type { MetricsPoint, SandboxMetrics } from '@coppice/contract';
import { Api } from '../fixtures/api/api.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { useInternet } from '../fixtures/egress/egress-shared.ts';
import { PLACES, PORTS } from '../fixtures/internet/zone.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const TOKEN = 'metrics-of-the-end-to-end-tests';
const INSTANCE = 16;
const MIB = 2 ** 20;
const SAMPLES_MS = 60_000;
const SHAPE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };

type Now = NonNullable<SandboxMetrics['now']>;
type Network = NonNullable<Now['network']>;

describe('metrics', () => {
  const resources = new AsyncDisposableStack();
  const openInternet = useInternet(resources);
  let service: Service;
  let api: Api;
  let clones: CloneApi;
  let id: string;

  before(async () => {
    const internet = await openInternet();
    const env = { ...internet.environment, COPPICE_METRICS_TOKEN: TOKEN, COPPICE_WARM_POOL: '1' };
    service = resources.use(await startPrepared({ instance: INSTANCE, env }));
    api = new Api(service);
    clones = new CloneApi(api);
    ({ id } = await api.create(SHAPE));
  });

  const measure = async (query = ''): Promise<SandboxMetrics> => {
    const { status, text } = await api.call('GET', `/v1/runs/${id}/metrics${query}`);
    assert.equal(status, 200, text);
    return JSON.parse(text) as SandboxMetrics;
  };

  /** Measures after this call: a measurement is shared for a second. */
  const measureNow = async (): Promise<Now> => {
    const askedAt = Date.now();
    let found: Now | undefined;
    await service.waitFor('a new measurement', SAMPLES_MS, async () => {
      const { now } = await measure();
      assert.ok(now !== null, 'the sandbox runs');
      found = Date.parse(now.at) >= askedAt ? now : undefined;
      return found !== undefined;
    });
    assert.ok(found);
    return found;
  };

  const run = async (command: string): Promise<string> => {
    const { exit_code, stdout, stderr } = await api.exec(id, command, { timeout: 60 });
    assert.equal(exit_code, 0, stderr);
    return stdout.trim();
  };

  const scrape = async (series: string): Promise<number> => {
    const { status, text } = await api.call('GET', '/metrics', { key: TOKEN });
    assert.equal(status, 200, text);
    // Of the only runner.
    const plain = text.replaceAll(/runner="runner-\w+",?/gu, '').replaceAll('{} ', ' ');
    const line = plain.split('\n').find((each) => each.startsWith(`${series} `));
    return line === undefined ? 0 : Number(line.slice(series.length + 1));
  };

  const findPoint = async (what: string, fits: (point: MetricsPoint) => boolean): Promise<MetricsPoint> => {
    let found: MetricsPoint | undefined;
    await service.waitFor(what, SAMPLES_MS, async () => {
      found = (await measure()).series.find(fits);
      return found !== undefined;
    });
    assert.ok(found);
    return found;
  };

  it('show the CPU time that a busy program uses', { timeout: 120_000 }, async () => {
    const before = await measureNow();
    const startedAt = performance.now();
    await run("timeout 3 sh -c 'while :; do :; done' || [ $? = 124 ]");
    const after = await measureNow();
    const elapsedS = (performance.now() - startedAt) / 1000;
    const usedS = after.cpu.used_seconds - before.cpu.used_seconds;
    assert.ok(usedS > 0.5, `${usedS} s are used`);
    assert.ok(usedS < 2 * elapsedS, `${usedS} s in ${elapsedS} s`);
  });

  it('show what is written to the disk and read from it', { timeout: 120_000 }, async () => {
    const before = await measureNow();
    await run('head -c 20M /dev/urandom > /var/tmp/content; sync');
    const written = await measureNow();
    const writtenBytes = written.disk.written_bytes - before.disk.written_bytes;
    assert.ok(writtenBytes >= 20 * MIB && writtenBytes < 60 * MIB, `${writtenBytes} bytes are written`);
    const grownBytes = written.disk.used_bytes - before.disk.used_bytes;
    assert.ok(grownBytes >= 15 * MIB && grownBytes < 60 * MIB, `${grownBytes} bytes are used`);
    await run('echo 3 > /proc/sys/vm/drop_caches; cat /var/tmp/content > /dev/null');
    const readBytes = (await measureNow()).disk.read_bytes - written.disk.read_bytes;
    assert.ok(readBytes >= 20 * MIB && readBytes < 60 * MIB, `${readBytes} bytes are read`);
    assert.equal(written.workspace, null);
  });

  it('show the memory that a program fills, on the host and in the guest', { timeout: 120_000 }, async () => {
    const before = await measureNow();
    const fill = `python3 -c "import time; b = b'1' * (64 << 20); open('/tmp/filled', 'w'); time.sleep(600)"`;
    await run(`nohup ${fill} >/dev/null 2>&1 & until [ -e /tmp/filled ]; do sleep 0.1; done`);
    const after = await measureNow();
    const grownBytes = after.memory.host_bytes - before.memory.host_bytes;
    assert.ok(grownBytes >= 48 * MIB && grownBytes < 128 * MIB, `${grownBytes} bytes more`);
    assert.equal(after.memory.size_bytes, 256 * MIB);
    assert.ok(before.guest_reported !== null && after.guest_reported !== null);
    const lostBytes =
      before.guest_reported.memory_available_bytes - after.guest_reported.memory_available_bytes;
    assert.ok(lostBytes >= 40 * MIB, `${lostBytes} bytes fewer are available`);
    assert.ok(after.guest_reported.memory_total_bytes < 256 * MIB);
    await run('pkill python3');
  });

  it('show the frames at the network device', { timeout: 120_000 }, async () => {
    const networkNow = async (): Promise<Network> => {
      const { network } = await measureNow();
      assert.ok(network !== null);
      return network;
    };
    // The guest's kernel drops frames while it asks for the address of the next hop.
    await run(`bash -c 'exec 3<>/dev/tcp/${PLACES.allowed}/${PORTS.bytes}'`);
    const before = await networkNow();
    const send = `import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); [s.sendto(bytes(1000), ('${PLACES.allowed}', ${PORTS.echo})) for _ in range(500)]`;
    await run(`python3 -c "${send}"`);
    const sent = await networkNow();
    const packets = sent.sent_packets - before.sent_packets;
    assert.ok(packets >= 500 && packets < 700, `${packets} packets are sent`);
    const bytes = sent.sent_bytes - before.sent_bytes;
    assert.ok(bytes >= 500 * 1028 && bytes < 700 * 1100, `${bytes} bytes are sent`);
    const download = `exec 3<>/dev/tcp/${PLACES.allowed}/${PORTS.bytes}; echo 1000000 >&3; head -c 1000000 <&3 | wc -c`;
    assert.equal(await run(`bash -c '${download}'`), '1000000');
    const received = (await networkNow()).received_bytes - sent.received_bytes;
    assert.ok(received > 1_000_000 && received < 2_000_000, `${received} bytes are received`);
  });

  it('have a series of points with what was used in their time', { timeout: 180_000 }, async () => {
    const since = new Date().toISOString();
    await run("nohup timeout 25 sh -c 'while :; do :; done' >/dev/null 2>&1 &");
    const point = await findPoint(
      'a busy point',
      ({ at, cpu_utilization }) => at > since && cpu_utilization > 0.2,
    );
    assert.ok(point.cpu_utilization < 2);
    assert.ok(point.duration_seconds > 8 && point.duration_seconds < 30, `${point.duration_seconds} s`);
    assert.ok(point.memory_bytes > 16 * MIB);
    const { series, now, step_seconds } = await measure(`?since=${since}`);
    assert.equal(step_seconds, 10);
    assert.ok(series.every(({ at }) => at > since));
    const all = await measure();
    const sentBytes = all.series.reduce((sum, each) => sum + each.network_sent_bytes, 0);
    assert.ok(sentBytes > 500 * 1028 && sentBytes <= (now?.network?.sent_bytes ?? 0), `${sentBytes} bytes`);
    const hour = await measure('?step=3600');
    assert.ok(hour.series.length <= 2);
    const merged = hour.series.reduce((sum, each) => sum + each.network_sent_bytes, 0);
    assert.ok(merged >= sentBytes);
  });

  it('have the last hour of a hibernated sandbox, and do not resume it', { timeout: 180_000 }, async () => {
    const { series: former } = await measure();
    const { cpu } = await measureNow();
    await clones.hibernate(id);
    const { now, series } = await measure();
    assert.equal(now, null);
    assert.ok(series.length >= former.length && series.length > 0);
    assert.equal((await api.get(id))['status'], 'hibernated');
    await clones.resume(id);
    const resumed = await measure();
    assert.ok(resumed.now !== null && resumed.now.cpu.used_seconds < cpu.used_seconds);
    assert.ok(resumed.series.length >= series.length);
  });

  it('begin anew when the runner restarts, for a VM that runs on', { timeout: 180_000 }, async () => {
    const { cpu } = await measureNow();
    await service.killRole('runner');
    const { now, series } = await measure();
    assert.ok(now !== null && now.cpu.used_seconds >= cpu.used_seconds);
    assert.deepEqual(series, []);
    await findPoint('a point of the new runner', () => true);
  });

  it('do not keep a sandbox from its idle timeout', { timeout: 120_000 }, async () => {
    const { id: idle } = await api.create({ ...SHAPE, timeout: 2 });
    await service.waitFor('the end of the sandbox', 20_000, async () => {
      const { status } = await api.call('GET', `/v1/runs/${idle}/metrics`);
      assert.ok(status === 200 || status === 409, `status ${status}`);
      return status === 409;
    });
    assert.equal((await api.get(idle))['status_reason'], 'idle_timeout');
  });

  it('of the service count creates, commands and errors', { timeout: 180_000 }, async () => {
    const series = {
      created: 'coppice_sandbox_starts_total{kind="create",outcome="ok"}',
      steps: 'coppice_sandbox_start_step_duration_seconds_count{kind="create",step="resume"}',
      resumed: 'coppice_sandbox_starts_total{kind="resume",outcome="ok"}',
      commands: 'coppice_http_requests_total{method="POST",route="/v1/runs/:id/exec",status="200"}',
      unpinned: 'coppice_errors_total{code="image_not_pinned"}',
      hits: 'coppice_runner_warm_pool_creates_total{result="hit"}',
    };
    const read = async (): Promise<Record<keyof typeof series, number>> => {
      const values = Object.entries(series).map(async ([name, one]) => [name, await scrape(one)] as const);
      return Object.fromEntries(await Promise.all(values)) as Record<keyof typeof series, number>;
    };
    await service.waitFor('a warm VM', 60_000, async () => (await scrape('coppice_runner_warm_vms')) === 1);
    const before = await read();
    assert.equal(before.resumed, 1);
    const { id: second } = await api.create(SHAPE);
    await api.exec(second, 'true');
    await api.call('POST', '/v1/runs', { body: { image: 'node:latest' } });
    await service.waitFor(
      'the counts',
      10_000,
      async () => (await scrape(series.commands)) > before.commands,
    );
    const after = await read();
    assert.deepEqual(after, {
      created: before.created + 1,
      steps: before.steps + 1,
      resumed: 1,
      commands: before.commands + 1,
      unpinned: before.unpinned + 1,
      hits: before.hits + 1,
    });
    assert.equal(await scrape('coppice_sandboxes{state="running"}'), 2);
    assert.equal(await scrape('coppice_runner_vms{phase="running"}'), 2);
    assert.ok((await scrape('coppice_runner_reserved_memory_bytes')) >= 512 * MIB);
    await api.destroy(second);
    assert.equal(await scrape('coppice_sandboxes{state="running"}'), 1);
  });

  it('of the service name its versions, and nothing of a tenant', async () => {
    const { text } = await api.call('GET', '/metrics', { key: TOKEN });
    assert.match(
      text,
      /^coppice_runner_build_info\{runner="runner-[0-9a-f]{32}",machine="[0-9a-f]{32}",qemu="\d+\.[^"]+",kernel="\d+\.[^"]+"/mu,
    );
    assert.ok(!text.includes(id) && !text.includes(SHAPE.image));
    assert.equal((await api.call('GET', '/metrics')).status, 401);
  });
});
