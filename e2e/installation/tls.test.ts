import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { after, before, describe, it } from 'node:test';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import {
  TestAuthority,
  type MadeCertificate,
} from '../../packages/server/src/lib/tls/testing/certificate.ts';
import { searchDisk } from '../fixtures/host/disk-search.ts';
import { Installation, type Start } from '../fixtures/service/installation.ts';

const START_TIMEOUT_MS = 120_000;
const RELOAD_TIMEOUT_MS = 10_000;
const COMMAND_TIMEOUT_MS = 60_000;
const CONFIG_EXIT_CODE = 78;
const ADDRESS = /listening on (https:\S+)/gu;
const SDK = new URL('../../packages/sdk/src/index.ts', import.meta.url).href;

/** A program of a user of the client. The authority comes from NODE_EXTRA_CA_CERTS. */
const PROGRAM = `
  import { Coppice } from ${JSON.stringify(SDK)};
  const client = new Coppice();
  await using sandbox = await client.sandboxes.create({ image: 'coppice/base:1', memMiB: 256 });
  await sandbox.upload('/workspace/a', 'over TLS');
  console.log((await sandbox.exec('cat /workspace/a')).stdout);
`;

describe('the API under TLS', () => {
  const authority = new TestAuthority();
  const live = { certPath: authority.path('live.pem'), keyPath: authority.path('live.key') };
  const tls = { COPPICE_TLS_CERT: live.certPath, COPPICE_TLS_KEY: live.keyPath };
  let installation: Installation;
  let service: Start;
  let key: string;

  const install = ({ certPath, keyPath }: MadeCertificate): void => {
    copyFileSync(certPath, live.certPath);
    copyFileSync(keyPath, live.keyPath);
    chmodSync(live.keyPath, 0o600);
  };
  /** Returns the current address: the port changes with a restart. */
  const address = (): URL => new URL([...service.stdout.matchAll(ADDRESS)].at(-1)![1]!);
  const curl = (...args: string[]): string =>
    execFileSync(
      'curl',
      ['--silent', '--show-error', '--max-time', '20', '--cacert', authority.certPath, ...args],
      {
        encoding: 'utf8',
        timeout: COMMAND_TIMEOUT_MS,
      },
    );
  const servedName = async (): Promise<string | undefined> => {
    const { hostname: host, port } = address();
    const socket = connect({ host, port: Number(port), ca: readFileSync(authority.certPath) });
    await once(socket, 'secureConnect', { signal: AbortSignal.timeout(RELOAD_TIMEOUT_MS) });
    const name = socket.getPeerCertificate().subject.CN;
    socket.destroy();
    return name as string | undefined;
  };
  const reload = async (expected: RegExp): Promise<void> => {
    const from = service.stderr.length;
    process.kill(service.pid, 'SIGHUP');
    await service.waitForLog(expected, from, RELOAD_TIMEOUT_MS);
  };

  before(async () => {
    // The account of control cannot read the key's directory.
    chmodSync(authority.directory, 0o700);
    install(authority.issue('first'));
    installation = await Installation.create();
    await installation.prepare();
    service = installation.start({ ...tls, COPPICE_HSTS_SECONDS: '600' });
    await service.waitForPrint(/-d '\{"image".*\n/u, START_TIMEOUT_MS);
    key = /cop_live_us_[A-Za-z0-9]{40}/u.exec(service.stdout)?.[0] ?? '';
  });
  after(async () => {
    await installation[Symbol.asyncDispose]();
    authority[Symbol.dispose]();
  });

  it('a first sandbox runs, and the printed command creates one unchanged', () => {
    assert.match(service.stdout, /^ {2}hello from Linux \S+, 1 vCPU, \d+ MiB$/mu);
    const command = /^ {2}curl [\s\S]*?\}'$/mu.exec(service.stdout)?.[0] ?? 'exit 1';
    assert.match(command, /curl -s --cacert \S+ https:/u);
    const answer = execFileSync('/bin/sh', ['-c', command], {
      encoding: 'utf8',
      timeout: COMMAND_TIMEOUT_MS,
    });
    const { id, status } = JSON.parse(answer) as Record<string, string>;
    assert.equal(status, 'running', answer);
    curl('-X', 'DELETE', '-H', `authorization: Bearer ${key}`, new URL(`/v1/runs/${id}`, address()).href);
  });

  it('the account that serves cannot read the key file, and there is no copy of the key', async () => {
    assert.equal(statSync(live.keyPath).mode & 0o777, 0o600);
    const secret = Buffer.from(readFileSync(live.keyPath, 'utf8').split('\n')[1]!);
    assert.deepEqual(await searchDisk(installation.dataDir, [secret]), [false]);
    assert.deepEqual(await searchDisk(installation.runDir, [secret]), [false]);
    const pids = [service.pid, ...childrenOf(service.pid)];
    assert.ok(pids.length >= 3, 'supervisor, control and runner');
    assert.ok(readProcess(service.pid, 'environ').includes(installation.dataDir));
    for (const pid of pids)
      assert.ok(!(readProcess(pid, 'environ') + readProcess(pid, 'cmdline')).includes(secret.toString()));
    assert.ok(!service.stderr.includes(secret.toString()));
  });

  it('the client library works with a private certificate authority', () => {
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', PROGRAM], {
      encoding: 'utf8',
      timeout: COMMAND_TIMEOUT_MS,
      env: {
        PATH: process.env['PATH'],
        NODE_EXTRA_CA_CERTS: authority.certPath,
        SANDBOX_BASE_URL: address().origin,
        SANDBOX_API_KEY: key,
      },
    });
    assert.equal(output, 'over TLS\n');
  });

  it('browsers are instructed to use TLS only, and plain HTTP is not answered', async () => {
    const head = curl('--include', new URL('/healthz', address()).href);
    assert.match(head, /^HTTP\/1\.1 200/u);
    assert.match(head, /^strict-transport-security: max-age=600\r$/imu);
    await assert.rejects(fetch(`http://${address().host}/healthz`));
  });

  it('SIGHUP serves a renewed certificate to new connections, and an open request continues', async () => {
    const id = await createWithCurl();
    const run = new URL(`/v1/runs/${id}`, address()).href;
    const finish = await openExec(id, 'until [ -e /workspace/go ]; do sleep 0.1; done; echo through');
    install(authority.issue('second'));
    await reload(/the certificate is read again/u);
    await pollUntil({ step: 'the new certificate', timeoutMs: RELOAD_TIMEOUT_MS, intervalMs: 20 }, async () =>
      (await servedName()) === 'second' ? true : undefined,
    );
    const authorization = `authorization: Bearer ${key}`;
    curl('-H', authorization, '--data-binary', 'x', `${run}/files/upload?path=/workspace/go`);
    assert.match(await finish(), /"stdout":"through\\n"/u);
    curl('-X', 'DELETE', '-H', authorization, run);
  });

  it('a bad renewal is logged and the previous certificate stays, also after a restart of control', async () => {
    writeFileSync(live.keyPath, 'not a key');
    await reload(/COPPICE_TLS_KEY: \S+live\.key holds no private key.*the previous one stays/u);
    assert.equal(await servedName(), 'second');
    const control = childrenOf(service.pid).find((pid) =>
      readProcess(pid, 'cmdline').endsWith('\0control\0'),
    );
    const starts = [...service.stdout.matchAll(ADDRESS)].length;
    assert.ok(control !== undefined);
    process.kill(control, 'SIGKILL');
    await pollUntil({ step: 'control', timeoutMs: START_TIMEOUT_MS, intervalMs: 20 }, () =>
      [...service.stdout.matchAll(ADDRESS)].length > starts ? true : undefined,
    );
    assert.equal(await servedName(), 'second');
  });

  it('a start without a usable certificate, or without TLS on a non-loopback address, is refused with the remedy', async () => {
    install(authority.issue('third'));
    const expired = authority.issue('expired', { validFromDays: -9, validToDays: -1 });
    const refused: [env: Record<string, string>, message: RegExp][] = [
      [
        { COPPICE_LISTEN: '0.0.0.0:0' },
        /COPPICE_LISTEN: 0\.0\.0\.0 is not a loopback address.*COPPICE_TLS_CERT/u,
      ],
      [{ COPPICE_TLS_CERT: live.certPath }, /COPPICE_TLS_KEY: is missing/u],
      [
        { ...tls, COPPICE_TLS_KEY: '/nonexistent.key' },
        /COPPICE_TLS_KEY: \/nonexistent\.key does not exist/u,
      ],
      [{ ...tls, COPPICE_TLS_KEY: expired.keyPath }, /is not the key of the certificate/u],
      [
        { COPPICE_TLS_CERT: expired.certPath, COPPICE_TLS_KEY: expired.keyPath },
        /expired\.pem expired on .*renew it/u,
      ],
    ];
    for (const [env, message] of refused) {
      const start = installation.start(env);
      assert.equal(await start.ended, CONFIG_EXIT_CODE, start.stderr);
      assert.match(start.stderr, message);
      assert.ok(!start.stderr.includes('    at '), start.stderr);
    }
  });

  it('SIGTERM ends the service with 0', async () => {
    assert.equal(await service.stop(), 0, service.stderr.slice(-3000));
  });

  async function createWithCurl(): Promise<string> {
    const answer = curl(
      '-H',
      `authorization: Bearer ${key}`,
      '--json',
      '{"image":"coppice/base:1","mem_mib":256}',
      new URL('/v1/runs', address()).href,
    );
    return (JSON.parse(answer) as { id: string }).id;
  }

  /** Resolves when the command has started. The resulting function reads the answer to its end. */
  async function openExec(id: string, command: string): Promise<() => Promise<string>> {
    const { hostname: host, port } = address();
    const socket = connect({ host, port: Number(port), ca: readFileSync(authority.certPath) });
    const body = JSON.stringify({ command });
    socket.write(
      `POST /v1/runs/${id}/exec HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\nconnection: close\r\n` +
        `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    await once(socket, 'readable', { signal: AbortSignal.timeout(COMMAND_TIMEOUT_MS) });
    return () => text(socket);
  }
});

function childrenOf(pid: number): number[] {
  const output = execFileSync('pgrep', ['-P', String(pid)], {
    encoding: 'utf8',
    timeout: COMMAND_TIMEOUT_MS,
  });
  return output.trim().split('\n').map(Number);
}

function readProcess(pid: number, file: 'environ' | 'cmdline'): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1');
  } catch (error) {
    // The process has ended, or, like control's environment, is readable only by processes that may trace it.
    if (['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) return '';
    throw error;
  }
}
