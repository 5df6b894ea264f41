/**
 * Policies that change while connections are open, and that apply throughout the life of a sandbox: through copies,
 * pauses, and the death of the egress process, the runner and control.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { http, https, raw, udp, type Attempt } from '../fixtures/egress/egress-attempt.ts';
import { EgressGuest, type AuditEntry } from '../fixtures/egress/egress-guest.ts';
import { EGRESS_STEPS } from '../fixtures/faults/fault-cases.ts';
import { useEgress, type Egress } from '../fixtures/egress/egress-shared.ts';
import type { Seen } from '../fixtures/internet/seen.ts';
import { PLACES, PORTS } from '../fixtures/internet/zone.ts';

const { allowed, denied, foreign, other } = PLACES;
/** An unused address, which the host takes later. */
const HOST_LATER = '198.51.100.203';
const FLOWS = 5;
const RECOVERY_MS = 30_000;
const MORE_ATTEMPTS = 5;
const BYTES = 1_000_000;
/** An address without a server. */
const NOWHERE = '198.51.100.204';

const lines = (place: string): Attempt => raw('lines', `${place}:${PORTS.echo}`, [{ text: 'hello\n' }]);
const ONLY_ALLOWED = { network: { allow: [`${allowed}/32`] } };
const ALLOWED_AND_OTHER = { network: { allow: [`${allowed}/32`, other] } };

/**
 * Forbidden attempts, which the guest repeats in a loop while its sandbox is copied or paused, or a process of the
 * service is dead.
 */
const FORBIDDEN = [
  raw('an address', `${denied}:${PORTS.http}`, [{ text: 'GET / HTTP/1.0\r\n\r\n' }]),
  raw('a server that speaks first', `${foreign}:${PORTS.ssh}`, []),
  https('a name', foreign, 'foreign.example'),
  udp('a datagram', `${foreign}:${PORTS.echo}`),
];
const PERMITTED = raw('permitted', `${allowed}:${PORTS.ssh}`, []);

for (const attempt of [...FORBIDDEN, PERMITTED]) attempt.timeout_ms = 1000;

function arrivalsAt(seen: readonly Seen[], ...places: string[]): Seen[] {
  return seen.filter(({ at, kind }) => places.includes(at) && kind !== 'dns');
}

describe('a network policy of a live sandbox', () => {
  const resources = new AsyncDisposableStack();
  const egress = useEgress(resources);
  let all: Egress;
  let guest: EgressGuest;

  before(async () => {
    all = await egress();
    guest = resources.use(await EgressGuest.create(all.api, {}));
  });

  const reaches = async (attempt: Attempt, who = guest): Promise<boolean> =>
    (await who.attempt([attempt]))[0]?.outcome === 'answered';

  const nothingArrived = async (): Promise<void> =>
    assert.deepEqual(arrivalsAt(await all.internet.seen(), denied, foreign), []);

  it(
    'counts the bytes of a sandbox without a policy, and from zero after a resume',
    { timeout: 120_000 },
    async () => {
      const download = `exec 3<>/dev/tcp/${allowed}/${PORTS.bytes}; echo ${BYTES} >&3; head -c ${BYTES} <&3 | wc -c`;
      const earlier = await countersOf(guest);
      assert.equal(await guest.read(`bash -c '${download}'`), String(BYTES));
      const counters = await countersOf(guest);
      const received = counters['bytes_received']! - earlier['bytes_received']!;
      assert.ok(received > BYTES && received < 1.2 * BYTES, JSON.stringify({ earlier, counters }));
      assert.ok(counters['bytes_sent']! > earlier['bytes_sent']!, JSON.stringify({ earlier, counters }));
      assert.deepEqual([counters['connections_open'], counters['connections_allowed']], [null, null]);
      await guest.putNetwork(ONLY_ALLOWED);
      assert.ok(await reaches(PERMITTED));
      const judged = await countersOf(guest);
      assert.ok(judged['bytes_received']! > counters['bytes_received']!, JSON.stringify(judged));
      assert.equal(judged['connections_allowed'], 1);
      await guest.putNetwork({ network_profile: 'unrestricted' });
      await all.clones.hibernate(guest.id);
      assert.equal((await guest.getNetwork())['counters'], null);
      await all.clones.resume(guest.id);
      assert.ok((await countersOf(guest))['bytes_received']! < BYTES);
    },
  );

  it('resets connections that the kernel forwarded when a policy is set', async () => {
    await guest.hold('allowed later', FLOWS, lines(allowed));
    await guest.hold('denied later', FLOWS, lines(denied));
    assert.deepEqual((await guest.ping())['denied later']?.alive, FLOWS);
    await guest.putNetwork(ALLOWED_AND_OTHER);
    await all.internet.forget();
    const { 'denied later': ended } = await guest.ping();
    assert.equal(ended?.alive, 0);
    assert.equal(ended?.ended, FLOWS, 'with a reset, not with silence');
    assert.ok(await reaches(lines(allowed)));
    assert.ok(!(await reaches(lines(denied))));
    await nothingArrived();
    await guest.release();
  });

  it('resets proxied connections that are no longer allowed, and no others', async () => {
    await guest.hold('stays', FLOWS, lines(allowed));
    await guest.hold('goes', FLOWS, lines(other));
    await guest.putNetwork(ONLY_ALLOWED);
    const { stays, goes } = await guest.ping();
    assert.deepEqual(
      [stays?.alive, goes?.alive, goes?.ended],
      [FLOWS, 0, FLOWS],
      JSON.stringify({ stays, goes }),
    );
    await guest.putNetwork({ network: { deny: [allowed] } });
    assert.deepEqual((await guest.ping())['stays']?.alive, 0);
    await guest.release();
  });

  it('resets connections opened by a name when the name is removed', async () => {
    const named = [{ text: 'GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n' }];
    await guest.putNetwork({ network: { allow: ['allowed.example', '*.packages.example'] } });
    await guest.hold('by name', FLOWS, raw('by name', `${foreign}:${PORTS.echo}`, named));
    assert.equal((await guest.ping())['by name']?.alive, FLOWS);
    await guest.putNetwork({ network: { allow: ['*.packages.example'] } });
    const { 'by name': pinged } = await guest.ping();
    assert.deepEqual([pinged?.alive, pinged?.ended], [0, FLOWS], JSON.stringify(pinged));
    await guest.release();
  });

  it('lets the kernel forward again when it is removed, and reports its rules and counters', async () => {
    await guest.putNetwork(ONLY_ALLOWED);
    assert.ok(await reaches(PERMITTED));
    assert.ok(!(await reaches(FORBIDDEN[0]!)));
    const shown = await guest.getNetwork();
    const counters = shown['counters'] as Record<string, number>;
    assert.deepEqual((shown['network'] as Record<string, unknown>)['allow'], [allowed]);
    assert.ok(
      counters['connections_allowed']! > 0 && counters['connections_blocked']! > 0,
      JSON.stringify(counters),
    );
    assert.ok(counters['bytes_received']! > 0, JSON.stringify(counters));
    await guest.putNetwork({ network_profile: 'unrestricted' });
    assert.ok(await reaches(udp('a datagram', `${foreign}:${PORTS.echo}`)));
    const changes = (await guest.audit()).filter(({ event }) => event === 'policy.changed');
    assert.ok(changes.length >= 5);
  });

  it('refuses invalid changes and stays unchanged', async () => {
    await guest.putNetwork(ONLY_ALLOWED);
    const bodies = [
      {},
      { network: { allow: ['10.0.0.0/8'] } },
      { network: { allow: ['allowed.example:443'] } },
      { network: { allow: ['https://allowed.example/'] } },
      { network: { allow: ['*.*.example'] } },
      { network: ONLY_ALLOWED.network, network_profile: 'locked-down' },
      { network_profile: 'no-such-profile' },
    ];
    for (const body of bodies) {
      const answer = await all.api.call('PUT', `/v1/runs/${guest.id}/network`, { body });
      assert.equal(answer.status, 400, JSON.stringify(body));
    }
    assert.ok(await reaches(PERMITTED));
    assert.ok(!(await reaches(FORBIDDEN[0]!)));
  });

  it(
    'applies from the first packet through fork, restore, hibernation and rollback',
    { timeout: 300_000 },
    async () => {
      await guest.putNetwork(ONLY_ALLOWED);
      await all.internet.forget();
      await guest.spin([...FORBIDDEN, PERMITTED]);
      const [child] = await all.clones.fork(guest.id, 1);
      const fork = resources.use(new EgressGuest(all.api, child!.id));
      const snapshotId = await all.clones.snapshot(guest.id);
      resources.defer(() => all.clones.deleteSnapshot(snapshotId));
      const restored = resources.use(new EgressGuest(all.api, (await all.clones.restore(snapshotId)).id));
      await all.clones.hibernate(fork.id);
      await all.clones.resume(fork.id);
      await all.clones.rollback(guest.id, snapshotId);
      for (const one of [guest, fork, restored]) {
        const started = await one.spun();
        await waitForAttempts(
          one,
          started.map(({ attempts }) => attempts),
        );
        const counts = await one.stopSpinning();
        const through = counts.filter(({ name, answered }) => name !== PERMITTED.name && answered > 0);
        assert.deepEqual(through, [], one.id);
        assert.ok(counts.at(-1)!.answered > started.at(-1)!.answered, `${one.id} reaches what it may`);
        const { network } = await one.getNetwork();
        assert.deepEqual((network as Record<string, unknown>)['allow'], [allowed]);
      }
      await nothingArrived();
      const loosened = await all.api.call('POST', '/v1/runs/restore', {
        body: { snapshot_id: snapshotId, network_profile: 'locked-down' },
      });
      assert.equal(loosened.status, 201, loosened.text);
      const locked = resources.use(new EgressGuest(all.api, String(loosened.body['id'])));
      assert.ok(!(await reaches(PERMITTED, locked)), 'the restored sandbox has its own policy');
    },
  );

  it(
    'blocks everything while the egress process is down, and applies when it is back',
    { timeout: 120_000 },
    async () => {
      await guest.putNetwork(ONLY_ALLOWED);
      await all.internet.forget();
      await guest.spin([...FORBIDDEN, PERMITTED]);
      const pid = all.service.egressPid();
      process.kill(pid, 'SIGKILL');
      await waitUntilReached(guest, PERMITTED);
      assert.notEqual(all.service.egressPid(), pid);
      const counts = await guest.stopSpinning();
      assert.deepEqual(
        counts.filter(({ name, answered }) => name !== PERMITTED.name && answered > 0),
        [],
      );
      await nothingArrived();
      const since = await guest.lastSeq();
      assert.ok(!(await reaches(FORBIDDEN[0]!)));
      assert.deepEqual(await guest.findUntold([denied], since, isBlocked), []);
    },
  );

  it(
    'blocks an address that the host takes later, and resets no other connection',
    { timeout: 60_000 },
    async () => {
      await guest.putNetwork({ network: { allow: [`${allowed}/32`, `${HOST_LATER}/32`] } });
      await guest.hold('stays', FLOWS, lines(allowed));
      const pid = all.service.egressPid();
      const since = await guest.lastSeq();
      const ip = (verb: string): unknown =>
        execFileSync('ip', ['address', verb, `${HOST_LATER}/32`, 'dev', 'lo']);
      ip('replace');
      try {
        const answer = (socket: Socket): void => {
          // A connection that the policy no longer allows ends with a reset.
          socket.on('error', () => socket.destroy());
          socket.resume().end('of the host');
        };
        await using server = createServer(answer).listen(PORTS.echo, HOST_LATER);
        await once(server, 'listening');
        const options = { step: `${HOST_LATER} to be closed`, timeoutMs: RECOVERY_MS, intervalMs: 200 };
        await pollUntil(options, async () => ((await reaches(lines(HOST_LATER))) ? undefined : true));
        assert.deepEqual(
          await guest.findUntold(
            ['host_address'],
            since,
            ({ data }, reason) => data['ip'] === HOST_LATER && data['reason'] === reason,
          ),
          [],
        );
        assert.equal((await guest.ping())['stays']?.alive, FLOWS);
        assert.equal(all.service.egressPid(), pid);
      } finally {
        ip('delete');
      }
      await guest.release();
      await guest.putNetwork(ONLY_ALLOWED);
    },
  );

  for (const role of ['runner', 'control'] as const) {
    it(
      `applies through a kill -9 of ${role}, and later the log has the refusals of that time`,
      { timeout: 180_000 },
      async () => {
        await all.internet.forget();
        const since = await guest.lastSeq();
        const target = role === 'runner' ? '198.51.100.201' : '198.51.100.202';
        const during = raw('while it is away', `${target}:${PORTS.http}`, []);
        await guest.spin([...FORBIDDEN, PERMITTED, { ...during, timeout_ms: 1000 }]);
        await all.service.killRole(role);
        await waitUntilReached(guest, PERMITTED);
        const counts = await guest.stopSpinning();
        assert.deepEqual(
          counts.filter(({ name, answered }) => name !== PERMITTED.name && answered > 0),
          [],
        );
        await nothingArrived();
        assert.deepEqual(await guest.findUntold([target, denied], since, isBlocked), []);
        await guest.putNetwork({ network_profile: 'locked-down' });
        assert.ok(!(await reaches(PERMITTED)));
        await guest.putNetwork(ONLY_ALLOWED);
        assert.ok(await reaches(PERMITTED));
      },
    );
  }

  it("logs refusals after a loss of the runner's event spool", { timeout: 120_000 }, async () => {
    const since = await guest.lastSeq();
    assert.ok(!(await reaches(FORBIDDEN[0]!)));
    assert.deepEqual(await guest.findUntold([denied], since, isBlocked), [], 'the sandbox has a cursor');
    // Stop the runner first: a running one with a note to write would create the spool again.
    process.kill(all.service.rolePid('runner'), 'SIGSTOP');
    rmSync(join(all.service.dataDir, 'runner', 'events'), { recursive: true });
    await all.service.killRole('runner');
    await waitUntilReached(guest, PERMITTED);
    assert.ok(!(await reaches(raw('a refusal after it', `${NOWHERE}:${PORTS.http}`, []))));
    assert.deepEqual(await guest.findUntold([NOWHERE], since, isBlocked), []);
    assert.match(all.service.output, /the event spool is gone/u);
    assert.match(all.service.output, /the runner's event spool was lost/u);
  });

  for (const role of ['control', 'runner'] as const) {
    for (const step of EGRESS_STEPS) {
      const outcome = role === 'control' ? 'is undone' : 'is in force again';
      it(`a change during which ${role} dies at ${step} ${outcome}`, { timeout: 120_000 }, async () => {
        await guest.putNetwork(ONLY_ALLOWED);
        const since = await guest.lastSeq();
        using hold = all.holds.hold(step);
        const body = { network_profile: 'locked-down' };
        const changing = all.api.call('PUT', `/v1/runs/${guest.id}/network`, { body }).catch(() => undefined);
        await hold.reached();
        assert.ok(!(await reaches(PERMITTED)), 'the change is in force');
        const back = all.service.killRole(role);
        hold.release();
        await back;
        const answer = await changing;
        const told = (await guest.audit(since)).filter(({ event }) => event === 'policy.changed');
        const { network_profile: profile } = await guest.getNetwork();
        if (role === 'control') {
          await waitUntilReached(guest, PERMITTED);
          assert.deepEqual([answer, told, profile], [undefined, [], null]);
        } else {
          assert.deepEqual([answer?.status, told.length, profile], [200, 1, 'locked-down']);
          assert.ok(!(await reaches(PERMITTED)));
        }
      });
    }
  }

  it('does not apply to the next sandbox at the same address', async () => {
    const { internet, api } = all;
    await guest.destroy();
    await using next = await EgressGuest.create(api, { network_profile: 'locked-down' });
    await internet.forget();
    const results = await next.attempt([PERMITTED, http('a Host', allowed, 'allowed.example')]);
    assert.ok(
      results.every(({ outcome }) => outcome === 'refused'),
      JSON.stringify(results),
    );
    assert.deepEqual(arrivalsAt(await internet.seen(), ...Object.values(PLACES)), []);
  });

  async function waitUntilReached(who: EgressGuest, attempt: Attempt): Promise<void> {
    const options = { step: `${attempt.name} to be reached`, timeoutMs: RECOVERY_MS, intervalMs: 200 };
    await pollUntil(options, async () =>
      (await reaches(attempt, who).catch(() => false)) ? true : undefined,
    );
  }

  /** Waits until the guest has repeated each attempt several times. */
  async function waitForAttempts(who: EgressGuest, before: readonly number[]): Promise<void> {
    const options = { step: `more attempts of ${who.id}`, timeoutMs: RECOVERY_MS, intervalMs: 200 };
    await pollUntil(options, async () => {
      const now = await who.spun();
      return now.every(({ attempts }, index) => attempts > before[index]! + MORE_ATTEMPTS) ? true : undefined;
    });
  }
});

async function countersOf(guest: EgressGuest): Promise<Record<string, number | null>> {
  return (await guest.getNetwork())['counters'] as Record<string, number | null>;
}

function isBlocked({ event, data }: AuditEntry, ip: string): boolean {
  return event === 'network.blocked' && data['ip'] === ip;
}
