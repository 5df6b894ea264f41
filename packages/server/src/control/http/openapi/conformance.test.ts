/**
 * Tests the API against its own description: schemathesis makes valid and invalid requests from the document and checks
 * every answer. `npm test` installs it; by hand, `COPPICE_TEST_API_PYTHON` names an interpreter that has it.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Validator } from '@seriousme/openapi-schema-validator';
import type { PreparedImage } from '../../../lib/protocol/runner-protocol.ts';
import { API_KEY, startHarness, type ControlHarness } from '../../testing/control-harness.ts';

const CONFIGURATION = fileURLToPath(new URL('schemathesis.toml', import.meta.url));
const DOCUMENT = fileURLToPath(new URL('../../../../../../docs/reference/openapi.json', import.meta.url));
/** Alone it takes 200 s on two cores. */
const DEADLINE_MS = 15 * 60_000;
/** Requests with generated content for each operation, in addition to those at the edges of every schema. */
const EXAMPLES = 3;
const UNLIMITED = 1_000_000;
/** Lines of control's log to show when a check fails. */
const SHOWN_WARNINGS = 10;

/** Directory for files that schemathesis keeps of its runs. */
const directory = mkdtempSync(join(tmpdir(), 'coppice-conformance-'));
const python = process.env['COPPICE_TEST_API_PYTHON'];
let harness: ControlHarness;
before(async () => {
  assert.ok(
    python !== undefined,
    'COPPICE_TEST_API_PYTHON must name a Python interpreter that has schemathesis',
  );
  harness = await startHarness({
    requestsPerSecond: UNLIMITED,
    requestBurst: UNLIMITED,
    sandboxesPerOrganization: UNLIMITED,
    wrongKeysPerMinute: UNLIMITED,
  });
});
after(() => harness?.[Symbol.asyncDispose]());
after(() => rmSync(directory, { recursive: true }));

test('two validators accept the document as OpenAPI 3.1', async () => {
  assert.deepEqual(await new Validator().validate(DOCUMENT), { valid: true });
  const { code, output } = await runPython(
    'import sys, runpy; runpy.run_module("openapi_spec_validator", run_name="__main__")',
    [DOCUMENT],
  );
  assert.equal(code, 0, output);
});

test('the document describes every answer of /v1, and no answer is a fault', async () => {
  await using service = createServer((_request, response) => {
    response.setHeader('content-type', 'text/plain').end('hello');
  });
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  harness.runner.ports.set(80, (service.address() as AddressInfo).port);
  const { image } = await harness.create();
  harness.runner.progress = [{ type: 'done', image: describeImage(image) }];
  const { code, output } = await runPython('from schemathesis.cli import schemathesis; schemathesis()', [
    '--config-file',
    CONFIGURATION,
    'run',
    `${harness.control?.address}/openapi.json`,
    '--header',
    `Authorization: Bearer ${API_KEY}`,
    '--include-path-regex',
    '^/(v1/|healthz|openapi)',
    '--phases',
    'coverage,fuzzing',
    '--max-examples',
    String(EXAMPLES),
    '--generation-deterministic',
    '--continue-on-failure',
    '--no-color',
  ]);
  const warnings = harness.logLines.filter((line) => !line.includes('"level":30')).slice(-SHOWN_WARNINGS);
  assert.equal(code, 0, shorten([...warnings, output].join('\n')));
});

function describeImage(image: string): PreparedImage {
  const digest = image.slice(image.indexOf('@') + 1);
  return {
    image,
    digest,
    size_bytes: 1,
    prepared_at: '2026-11-21T06:30:00.000Z',
    status: 'ready',
    shapes: [],
  };
}

/** Cuts off generated content, of which a line may have a mebibyte. */
function shorten(output: string): string {
  return output
    .split('\n')
    .map((line) => line.slice(0, 500))
    .join('\n');
}

interface Ended {
  code: number | null;
  output: string;
}

function runPython(program: string, args: readonly string[]): Promise<Ended> {
  const { promise, resolve } = Promise.withResolvers<Ended>();
  const child = execFile(
    python ?? '',
    ['-c', program, ...args],
    { timeout: DEADLINE_MS, maxBuffer: 64 << 20, cwd: directory },
    (_error, stdout, stderr) => resolve({ code: child.exitCode, output: stdout + stderr }),
  );
  return promise;
}
