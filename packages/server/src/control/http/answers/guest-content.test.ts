import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildSafeHeaders } from './guest-content.ts';

test('a download has the name of its file, whatever characters that has', () => {
  for (const [path, ending, expected] of [
    ['/a/b.txt', '', "attachment; filename*=UTF-8''b.txt"],
    ['dist', '.tar.gz', "attachment; filename*=UTF-8''dist.tar.gz"],
    ['/dist/', '.tar', "attachment; filename*=UTF-8''dist.tar"],
    [`/é"; x='(*)`, '', "attachment; filename*=UTF-8''%C3%A9%22%3B%20x%3D%27%28%2A%29"],
    ['/a\r\nx: y', '', "attachment; filename*=UTF-8''a%0D%0Ax%3A%20y"],
    ['/\ud800', '', "attachment; filename*=UTF-8''%EF%BF%BD"],
    ['/', '.tar', 'attachment'],
    ['..', '.tar', 'attachment'],
  ] as const)
    assert.equal(buildSafeHeaders(path, ending)['content-disposition'], expected);
});
