/**
 * Control groups of version 2, for real on any host. A guest has a kernel with version 2 only, so the test copies the
 * runner's own code into a guest and runs it there: at the top of the tree, and in groups that the code must divide
 * first.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { fileURLToPath } from 'node:url';
import { after, before, describe, it } from 'node:test';
import { Api } from '../fixtures/api/api.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const SOURCES = fileURLToPath(new URL('../../packages/server/src/', import.meta.url));
const CARRIED = [
  'lib/waiting/deadline.ts',
  'lib/missing-limits.ts',
  'runner/vm/shape.ts',
  ...[
    'cgroup-branch',
    'cgroup-probe',
    'cgroup-status',
    'cgroup-tree',
    'cgroup-usage',
    'hierarchies',
    'service-processes',
    'unit-limits',
  ].map((name) => `runner/confinement/${name}.ts`),
];
/** Starts the program like the supervisor starts the runner: as its child. */
const SUPERVISOR = "exec sh -c 'node /workspace/runner/program.mjs; exit $?'";
const PROGRAM = `
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { probeCgroups } from './confinement/cgroup-probe.ts';
import { CgroupTree } from './confinement/cgroup-tree.ts';
import { readGroupUsage } from './confinement/cgroup-usage.ts';
const silent = { info() {}, warn() {}, debug() {} };
const foreseen = probeCgroups();
const tree = CgroupTree.open({ slug: 'abcd', log: silent });
const groups = await tree.create('unit', { memBytes: 32 << 20, cpuPercent: 50, weight: 1, tasks: 16 });
const [directory] = tree.directoriesOf('unit');
const child = spawn('/bin/sh', ['-c', 'read go; exec tail /dev/zero'], { stdio: ['pipe', 'ignore', 'ignore'] });
for (const group of groups) writeFileSync(group + '/cgroup.procs', String(child.pid));
child.stdin.end('go\\n');
const [, signal] = await once(child, 'close');
const usage = readGroupUsage([directory]);
const limits = Object.fromEntries(['memory.max', 'cpu.max', 'cpu.weight', 'pids.max'].map((file) => [file, readFileSync(directory + '/' + file, 'utf8').trim()]));
await tree.remove([directory]);
tree.sweep(new Set());
tree.close();
console.log(JSON.stringify({ status: tree.status, foreseen: foreseen.controllers, directory, signal, usage, limits, own: readFileSync('/proc/self/cgroup', 'utf8').trim(), isLeft: existsSync(directory) }));
`;

/** Removes the types on the host: an emulated guest would take seconds. */
function toJavaScript(text: string): string {
  return stripTypeScriptTypes(text).replaceAll(/(from '\.[^']+)\.ts'/gu, "$1.mjs'");
}

function toJavaScriptName(path: string): string {
  return path.replace(/\.ts$/u, '.mjs');
}

interface Report {
  status: { controllers: string[]; reason: string };
  /** Controllers that `coppice admin doctor` would name. */
  foreseen: string[];
  directory: string;
  signal: string;
  usage: { cpuMs: number };
  limits: Record<string, string>;
  own: string;
  isLeft: boolean;
}

describe('control groups of version 2', () => {
  let service: Service;
  let api: Api;
  let id: string;
  before(async () => {
    service = await startPrepared({ instance: 1 });
    api = new Api(service);
    ({ id } = await api.create({ image: 'coppice/base:1', mem_mib: 256, timeout: 0 }));
    const files = new Map(CARRIED.map((path) => [path, readFileSync(`${SOURCES}${path}`, 'utf8')]));
    files.set('runner/program.ts', PROGRAM);
    for (const [path, text] of files) {
      const target = `/workspace/${toJavaScriptName(path)}`;
      const upload = await api.call('POST', `/v1/runs/${id}/files/upload?path=${target}`, {
        raw: toJavaScript(text),
      });
      assert.equal(upload.status, 200, upload.text);
    }
  });
  after(async () => {
    await service?.[Symbol.asyncDispose]();
  });

  const run = async (prefix: string): Promise<Report> => {
    const { stdout, stderr } = await api.exec(id, `${prefix} ${SUPERVISOR}`, { timeout: 60 });
    assert.match(stdout, /^\{/u, `${stdout}${stderr}`);
    return JSON.parse(stdout) as Report;
  };
  const assertLimited = (report: Report): void => {
    assert.deepEqual(report.status.controllers, ['cpu', 'memory', 'pids'], report.status.reason);
    assert.deepEqual(report.foreseen, report.status.controllers);
    assert.equal(report.signal, 'SIGKILL');
    assert.ok(report.usage.cpuMs > 0);
    assert.deepEqual(report.limits, {
      'memory.max': String(32 << 20),
      'cpu.max': '50000 100000',
      'cpu.weight': '100',
      'pids.max': '16',
    });
    assert.equal(report.isLeft, false);
  };

  it('are made below the top of the tree, and limit a process', async () => {
    // Commands start in a group of the agent's.
    const report = await run('echo $$ > /sys/fs/cgroup/cgroup.procs;');
    assertLimited(report);
    assert.equal(report.directory, '/sys/fs/cgroup/coppice_abcd/unit');
  });

  it('are made in a group of the service, whose own processes move into a sibling group', async () => {
    const report = await run(
      'mkdir /sys/fs/cgroup/service && echo $$ > /sys/fs/cgroup/service/cgroup.procs &&',
    );
    assertLimited(report);
    assert.equal(report.directory, '/sys/fs/cgroup/service/coppice_abcd/unit');
    assert.equal(report.own, '0::/service/coppice_abcd_service');
  });

  it('are made at the top if the group has other processes, and no process is moved', async () => {
    const shared = '/sys/fs/cgroup/shared';
    const report = await run(
      `mkdir ${shared}; (sleep 1000 > /dev/null 2>&1 & echo $! > ${shared}/cgroup.procs); echo $$ > ${shared}/cgroup.procs;`,
    );
    assertLimited(report);
    assert.equal(report.directory, '/sys/fs/cgroup/coppice_abcd/unit');
    assert.equal(report.own, '0::/shared');
  });

  it('are made at the top, with a CPU limit, in a login session without the CPU controller', async () => {
    const slice = '/sys/fs/cgroup/user.slice';
    const report = await run(
      `mkdir ${slice} && echo '+memory +pids' > ${slice}/cgroup.subtree_control && mkdir ${slice}/session-1.scope &&
       (sleep 1000 > /dev/null 2>&1 & echo $! > ${slice}/session-1.scope/cgroup.procs); echo $$ > ${slice}/session-1.scope/cgroup.procs;`,
    );
    assert.equal(report.own, '0::/user.slice/session-1.scope');
    assertLimited(report);
    assert.equal(report.directory, '/sys/fs/cgroup/coppice_abcd/unit');
  });

  /** Prepares the groups as systemd does before each start. Fails if the group may hold no processes. */
  const startUnit = (group: string): Promise<Report> => {
    const all = "'+cpu +memory +pids'";
    const top = '/sys/fs/cgroup';
    return run(
      `echo ${all} > ${top}/cgroup.subtree_control && mkdir -p ${top}/system.slice &&
       echo ${all} > ${top}/system.slice/cgroup.subtree_control && mkdir -p ${top}${group} &&
       echo $$ > ${top}${group}/cgroup.procs &&`,
    );
  };

  it('are made next to the subgroup of a unit, which can be started again in it', async () => {
    for (let start = 0; start < 2; start += 1) {
      const report = await startUnit('/system.slice/coppice.service/coppice_unit');
      assertLimited(report);
      assert.equal(report.directory, '/sys/fs/cgroup/system.slice/coppice.service/coppice_abcd/unit');
      assert.equal(report.own, '0::/system.slice/coppice.service/coppice_unit');
    }
  });

  it('are made at the top for a unit without a subgroup, which can be started again in its group', async () => {
    for (let start = 0; start < 2; start += 1) {
      const report = await startUnit('/system.slice/old.service');
      assertLimited(report);
      assert.equal(report.directory, '/sys/fs/cgroup/coppice_abcd/unit');
      assert.equal(report.own, '0::/system.slice/old.service');
    }
  });
});
