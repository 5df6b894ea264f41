import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PreviewOrigins, type PreviewDomain } from './preview-origins.ts';

const id = 'run0123456789abcdef0123';
const build = (domain: PreviewDomain, listening = 'http://127.0.0.1:8080') =>
  new PreviewOrigins(domain, () => new URL(listening));

test('a name below the domain stands for a port, whatever its case and the port of the Host header', () => {
  const origins = build({ name: 'localhost' });
  assert.deepEqual(origins.find(`3000-${id}.localhost:8080`), { id, port: 3000 });
  assert.deepEqual(origins.find(`1-${id.toUpperCase()}.LOCALHOST`), { id, port: 1 });
});

test('any other name stands for no port', () => {
  const origins = build({ name: 'preview.example.com' });
  for (const host of [
    undefined,
    '',
    'preview.example.com',
    `3000-${id}.localhost`,
    `3000-${id}.evil-preview.example.com`,
    `x.3000-${id}.preview.example.com`,
    `0-${id}.preview.example.com`,
    `65536-${id}.preview.example.com`,
    `3000-${id}0.preview.example.com`,
    `3000-${id}.preview.example.com.evil.com`,
  ])
    assert.equal(origins.find(host), undefined, host);
});

test('an origin is built as users see it: from the listening address or from the operator’s settings', () => {
  const port = { id, port: 80 };
  assert.equal(build({ name: 'localhost' }).build(port), `http://80-${id}.localhost:8080`);
  assert.equal(build({ name: 'a.example', scheme: 'https' }).build(port), `https://80-${id}.a.example`);
  assert.equal(
    build({ name: 'a.example', scheme: 'https', port: 8443 }).build(port),
    `https://80-${id}.a.example:8443`,
  );
  assert.equal(build({ name: 'a.example' }, 'https://10.0.0.1').build(port), `https://80-${id}.a.example`);
});
