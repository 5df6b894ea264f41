import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { listSources } from '../sources/sources.ts';
import { buildResolver } from './links.ts';

const REPOSITORY = fileURLToPath(new URL('../../../../', import.meta.url));
const images = new Map<string, string>();
const resolve = buildResolver(REPOSITORY, listSources(REPOSITORY), images);

test('links between files become links between pages', () => {
  for (const [target, from, page] of [
    ['docs/guides/files.md', 'README.md', '/docs/guides/files'],
    ['../limits.md#images', 'docs/guides/files.md', '/docs/limits#images'],
    ['../../README.md#quick-start', 'docs/guides/files.md', '/docs/quick-start#quick-start'],
    ['../../packages/sdk/README.md', 'docs/guides/ci.md', '/docs/reference/typescript-client'],
    ['docs/decisions/README.md', 'README.md', '/docs/decisions'],
    ['docs/reference/', 'ARCHITECTURE.md', '/docs/reference'],
    ['reference/openapi.json', 'docs/limits.md', '/openapi.json'],
    ['#here', 'docs/limits.md', '#here'],
    ['https://example.com/a#b', 'README.md', 'https://example.com/a#b'],
  ] as const)
    assert.equal(resolve(target, from), page, target);
});

test('a file that is on no page has no link', () => {
  assert.equal(resolve('../../deploy/grafana/coppice.json', 'docs/guides/metrics.md'), undefined);
});

test('pictures come along', () => {
  assert.equal(resolve('plots/fork-pause.svg', 'docs/performance.md'), '/docs/images/fork-pause.svg');
  assert.equal(images.get('/docs/images/fork-pause.svg'), 'docs/plots/fork-pause.svg');
});

test('a dead link stops the build, and so does one out of the repository', () => {
  assert.throws(
    () => resolve('nothing.md', 'README.md'),
    /README\.md: the link nothing\.md leads to no file/u,
  );
  assert.throws(() => resolve('../../etc/passwd', 'README.md'), /leads to no file/u);
});

test('schemes that run code are no links', () => {
  for (const target of ['javascript:alert(1)', 'JAVASCRIPT:alert(1)', 'data:text/html,x', 'vbscript:x'])
    assert.equal(resolve(target, 'README.md'), undefined, target);
});
