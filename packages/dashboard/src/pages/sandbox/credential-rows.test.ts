import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findRowFault, toCredentialOptions, toRows, type CredentialRow } from './credential-rows.ts';

const updatedAt = '2026-11-27T12:00:00.000Z';
const endpoints = [{ methods: ['GET'], paths: ['/repos/acme/*'] }];

test('rules of credentials survive a change, and values are never known', () => {
  const rows = toRows([
    { service: 'github', endpoints, secret: 'github-bot', updatedAt },
    { service: 'openai', endpoints: null, secret: null, updatedAt },
  ]);
  const [github, openai] = rows;
  const filled = [github!, { ...openai!, value: 'sk-new' }];
  assert.deepEqual(toCredentialOptions(filled), {
    credentials: { openai: 'sk-new' },
    credentialsV2: { github: { key: { secret: 'github-bot' }, endpoints } },
  });
});

test('a row needs a service of its own, and a secret or a value', () => {
  const row: CredentialRow = { id: 1, service: 'openai', secret: '', value: 'sk', endpoints: null };
  assert.equal(findRowFault(row, [row]), undefined);
  assert.match(findRowFault({ ...row, value: '' }, [row]) ?? '', /secret/u);
  assert.match(findRowFault({ ...row, service: ' ' }, [row]) ?? '', /service/u);
  assert.match(findRowFault(row, [row, { ...row, id: 2, service: 'openai ' }]) ?? '', /twice/u);
});

test('a service with a name of the language is a service like others', () => {
  const row: CredentialRow = { id: 1, service: 'constructor', secret: 'a', value: '', endpoints: null };
  assert.deepEqual(Object.keys(toCredentialOptions([row]).credentials ?? {}), ['constructor']);
});
