import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ADMISSIONS, BLOCK_REASONS, SANDBOX_OPERATIONS, type Admission } from '@coppice/contract';
import { renderErrors, renderOpenApi } from './reference-docs.ts';

const ROOT = new URL('../../../../../', import.meta.url);
const REMEDY = 'run: node packages/server/src/control/http/write-reference-docs.ts';

function read(path: string): string {
  return readFileSync(new URL(path, ROOT), 'utf8');
}

test('docs/reference/openapi.json matches the schemas', async () => {
  const { version } = JSON.parse(read('packages/server/package.json')) as { version: string };
  assert.deepEqual(
    JSON.parse(read('docs/reference/openapi.json')),
    JSON.parse(await renderOpenApi(version)),
    REMEDY,
  );
});

test('docs/reference/errors.md matches the error table', () => {
  // The formatter widens the columns of a table.
  const squeeze = (text: string) =>
    text
      .replaceAll(/ +/g, ' ')
      .replaceAll(/-{3,}/g, '---')
      .replaceAll(/ ?\| ?/g, '|');
  assert.equal(squeeze(read('docs/reference/errors.md')), squeeze(renderErrors()), REMEDY);
});

test('docs/reference/audit.md lists each reason for which a connection is refused', () => {
  const text = read('docs/reference/audit.md').replaceAll(/ +/g, ' ');
  for (const [reason, meaning] of Object.entries(BLOCK_REASONS))
    assert.ok(text.includes(`| \`${reason}\` | ${meaning} |`), reason);
});

test('every reference in the OpenAPI document resolves', async () => {
  const text = await renderOpenApi('0');
  const { components } = JSON.parse(text) as { components: { schemas: Record<string, unknown> } };
  for (const [, name] of text.matchAll(/#\/components\/schemas\/(\w+)/g)) {
    assert.ok(name !== undefined && Object.hasOwn(components.schemas, name), name);
  }
});

test('docs/guides/fork-and-hibernate.md describes every operation as the contract does', () => {
  const guide = read('docs/guides/fork-and-hibernate.md');
  const words: Record<Admission, string> = { go: 'allowed', wait: 'waits', refuse: 'refused' };
  for (const operation of SANDBOX_OPERATIONS) {
    const row = guide.split('\n').find((line) => line.startsWith(`| \`${operation}\``)) ?? '';
    const cells = row.split('|').map((cell) => cell.trim());
    const requests = ['use', 'configure', 'fork', 'hibernate', 'resume', 'destroy'] as const;
    const told = cells.slice(2, 2 + requests.length).map((cell) => cell.split(';', 1)[0]);
    const admissions = ADMISSIONS[operation];
    assert.deepEqual(
      told,
      requests.map((request) => words[admissions[request]]),
      operation,
    );
    for (const like of ['snapshot', 'rollback'] as const) assert.equal(admissions[like], admissions.fork);
  }
});
