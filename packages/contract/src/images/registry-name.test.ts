import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '../errors.ts';
import { parseImageReference } from './image-reference.ts';
import { parseRegistryName } from './registry-name.ts';

test('all names of a registry become one canonical name', () => {
  const spellings: [string, string][] = [
    ['ghcr.io', 'ghcr.io'],
    ['GHCR.io', 'ghcr.io'],
    ['docker.io', 'docker.io'],
    ['Index.Docker.io', 'docker.io'],
    ['registry-1.docker.io', 'docker.io'],
    ['127.0.0.1:5000', '127.0.0.1:5000'],
    ['LOCALHOST', 'localhost'],
    ['registry:5000', 'registry:5000'],
    ['[::1]:5000', '[::1]:5000'],
  ];
  for (const [text, registry] of spellings) assert.equal(parseRegistryName(text), registry, text);
});

test('the canonical name is the one in references to its images', () => {
  for (const text of ['GHCR.io', 'index.docker.io', 'registry:5000', 'localhost', '[::1]:5000'])
    assert.equal(parseImageReference(`${text}/team/app:1`).registry, parseRegistryName(text), text);
});

test('a name that no reference can use for a registry is refused with its correction', () => {
  const refused: [string, RegExp][] = [
    ['https://index.docker.io/v1/', /not be a URL .* "host"/],
    ['ghcr.io/team', /or an image/],
    ['coppice', /built in/],
    ['myregistry', /a dot or a port/],
    ['', /a dot or a port/],
    ['ghcr.io:0', /"host:port"/],
    ['ghcr.io:99999', /"host:port"/],
    ['-a.example', /"host:port"/],
    ['a b.example', /"host:port"/],
    [`${'a'.repeat(254)}.io`, /longer than 255/],
  ];
  for (const [text, reason] of refused) {
    assert.throws(
      () => parseRegistryName(text),
      (error) => error instanceof AppError && error.code === 'invalid_request' && reason.test(error.message),
      text,
    );
  }
});

test('a password that was pasted into the name is not shown in the error', () => {
  assert.throws(
    () => parseRegistryName('https://user:hunter2@ghcr.io'),
    (error) => {
      assert.match(String(error), /user and password belong in the body/);
      return !String(error).includes('hunter2');
    },
  );
});
