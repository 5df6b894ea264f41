/** The SDK of OpenTelemetry is loaded only when a collector is configured, and then as a whole. prom-client loads its API. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { OtlpReceiver } from './testing/otlp-receiver.ts';

const TIMEOUT_MS = 60_000;
const SOURCES = new URL('../../', import.meta.url);
const ROLES = ['main.ts', 'control-role.ts', 'runner-role.ts', 'supervisor.ts', 'egress/egress.ts'];

/** Lists the modules that are resolved from here on. */
const RECORD = `
  import { registerHooks } from 'node:module';
  const loaded = [];
  registerHooks({ resolve: (name, context, next) => { const found = next(name, context); loaded.push(found.url); return found; } });
  const found = () => loaded.filter((url) => /@opentelemetry.(sdk|otlp|exporter|core|resources)|otel-tracer/.test(url)).length;
`;

async function run(program: string, args: readonly string[] = []): Promise<unknown> {
  const command = ['--input-type=module', '--eval', `${RECORD}\n${program}`, ...args];
  const { stdout } = await promisify(execFile)(process.execPath, command, { timeout: TIMEOUT_MS });
  return JSON.parse(stdout) as unknown;
}

const urlOf = (file: string): string => JSON.stringify(new URL(file, SOURCES).href);

test('without a collector no role loads it, whatever it traces', async () => {
  // The main module runs as an unknown role, which it refuses when all of its own imports are loaded.
  const imports = ROLES.map((file) => `await import(${urlOf(file)});`).join('\n');
  const counted = await run(`
    process.argv[2] = 'none';
    process.stderr.write = () => true;
    ${imports}
    process.exitCode = 0;
    const { traced } = await import(${urlOf('lib/tracing/tracing.ts')});
    await traced('step', async () => undefined);
    console.log(JSON.stringify({ all: loaded.length, otel: found() }));
  `);
  const { all, otel } = counted as { all: number; otel: number };
  assert.ok(all > 500, `${all} modules are seen`);
  assert.equal(otel, 0);
});

test('with a collector everything is loaded before the role begins', async () => {
  await using receiver = await OtlpReceiver.start();
  const counted = await run(`
    const { openTracing } = await import(${urlOf('lib/tracing/open-tracing.ts')});
    const { startRequest } = await import(${urlOf('lib/tracing/tracing.ts')});
    const log = { warn() {}, info() {} };
    const config = {
      url: ${JSON.stringify(`${receiver.endpoint}/v1/traces`)}, headers: {}, resource: {},
      sampler: { ratio: 1, followsCaller: true }, batchDelayMs: 10,
    };
    const tracing = await openTracing(config, { name: 'control', version: '1', log });
    const atStart = found();
    startRequest('request', {}).end();
    await tracing.close();
    console.log(JSON.stringify({ atStart, later: found() - atStart }));
  `);
  const { atStart, later } = counted as { atStart: number; later: number };
  assert.ok(atStart > 10, `${atStart}`);
  assert.equal(later, 0, 'control may by then not read the files of the program');
  assert.equal(receiver.spans.length, 1);
});
