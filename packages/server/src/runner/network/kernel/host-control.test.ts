import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { pollUntil } from '../../../lib/waiting/deadline.ts';
import { HOSTCTL } from '../../../config/testing/hostctl.ts';
import { enterHostNamespace } from '../testing/host-namespace.ts';
import { parseRefusedKind, REFUSED_SETS } from '../firewall/refused-packets.ts';
import { runNft } from '../testing/test-site.ts';
import { HostControl } from './host-control.ts';

const REASON = { skip: process.getuid?.() === 0 ? false : 'a network namespace needs root' };

function listChildren(): number[] {
  const found = execFileSync('ps', ['-o', 'pid=,args=', '--ppid', String(process.pid)], { encoding: 'utf8' });
  return found.split('\n').flatMap((line) => (line.includes(HOSTCTL) ? Number.parseInt(line, 10) : []));
}

test(
  'elements of a real set have their keys, counts and lifetimes; absent things are absent',
  REASON,
  async () => {
    using _ = enterHostNamespace();
    using control = new HostControl(HOSTCTL);
    assert.equal(await control.readSet('t', 'plain'), undefined);
    assert.equal(await control.readCounter('t', 'refused'), undefined);
    runNft(`table inet t {
    counter refused { packets 7 bytes 9 }
    set plain { type ifname; elements = { "tap1", "tap2" }; }
    set many { type ipv4_addr; }
    set refused_ports { type ifname . ipv4_addr . inet_proto . inet_service; flags dynamic,timeout; timeout 1m; }
  }
  add element inet t refused_ports { "tap7" . 203.0.113.1 . udp . 5000 counter packets 3 bytes 90 }
  add element inet t many { ${Array.from({ length: 4000 }, (__, at) => `10.0.${at >> 8}.${at & 255}`).join(', ')} }`);
    const sets = ['plain', 'refused_ports', 'many'].map((set) => control.readSet('t', set));
    const [plain, ports, many] = await Promise.all(sets);
    const names = plain?.map(({ key }) => key.toString('latin1').replace(/\0+$/u, ''));
    assert.deepEqual(names?.toSorted(), ['tap1', 'tap2']);
    assert.ok(plain?.every(({ packets, remainingMs }) => packets === 0 && remainingMs === Infinity));
    const [element] = ports ?? [];
    const kind = { tap: 'tap7', ip: '203.0.113.1', port: 5000, isSpoofed: false };
    assert.deepEqual(parseRefusedKind(REFUSED_SETS[0], element!), kind);
    assert.equal(element?.packets, 3);
    assert.ok(element.remainingMs > 50_000 && element.remainingMs <= 60_000);
    assert.equal(many?.length, 4000);
    assert.equal(await control.readCounter('t', 'refused'), 7);
    await control.flushConnections(0xff_ff_ff_ff);
    await control.checkTap('cop7e57p');
    await assert.rejects(control.checkTap('a name that is too long'), { code: 'internal' });
  },
);

test('the removal of the watched table is reported, also after hostctl has died', REASON, async () => {
  using _ = enterHostNamespace();
  using control = new HostControl(HOSTCTL);
  let removals = 0;
  using watch = await control.watchTable('t', () => (removals += 1));
  const wait = async (expected: number): Promise<void> => {
    await pollUntil({ step: `${expected} removals`, timeoutMs: 5000, intervalMs: 5 }, () =>
      removals >= expected ? true : undefined,
    );
  };
  runNft('add table inet t');
  runNft('add table inet other; delete table inet other');
  await control.readCounter('t', 'any');
  assert.equal(removals, 0);
  runNft('flush ruleset');
  await wait(1);
  for (const pid of listChildren()) process.kill(pid, 'SIGKILL');
  // Changes in between cannot be known, so the end of hostctl counts as one.
  await wait(2);
  runNft('add table inet t');
  runNft('delete table inet t');
  await wait(3);
  watch[Symbol.dispose]();
  runNft('add table inet t');
  runNft('delete table inet t');
  await control.readCounter('t', 'any');
  await delay(50);
  assert.equal(removals, 3);
});

test('a request in progress fails when hostctl dies, and the next one starts it again', REASON, async () => {
  using _ = enterHostNamespace();
  using control = new HostControl(HOSTCTL);
  assert.equal(await control.readCounter('t', 'any'), undefined);
  const [pid = 0] = listChildren();
  process.kill(pid, 'SIGSTOP');
  const asked = control.readCounter('t', 'any');
  process.kill(pid, 'SIGKILL');
  await assert.rejects(asked, { code: 'internal' });
  assert.equal(await control.readCounter('t', 'any'), undefined);
});

test('hostctl ends with its owner, which then refuses requests', async () => {
  const control = new HostControl(HOSTCTL);
  await control.readCounter('t', 'any').catch(() => undefined);
  const pids = listChildren();
  assert.equal(pids.length, 1);
  control[Symbol.dispose]();
  await pollUntil({ step: 'the end of hostctl', timeoutMs: 5000, intervalMs: 5 }, () =>
    listChildren().length === 0 ? true : undefined,
  );
  await assert.rejects(control.readCounter('t', 'any'), /the network is closed/u);
});

test('a program that is missing, ends, or talks nonsense is an error, not a wait', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-hostctl-'));
  try {
    const nonsense = join(directory, 'nonsense');
    await writeFile(nonsense, '#!/bin/sh\nread line; echo nonsense; sleep 60\n');
    await chmod(nonsense, 0o755);
    for (const program of ['/absent/hostctl', '/bin/false', nonsense]) {
      using control = new HostControl(program);
      await assert.rejects(control.readCounter('t', 'any'), { code: 'internal' }, program);
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});
