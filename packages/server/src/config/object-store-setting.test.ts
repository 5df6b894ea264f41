import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatObjectStore, ObjectStoreSetting } from './object-store-setting.ts';

function explain(text: string): string {
  const parsed = ObjectStoreSetting.safeParse(text);
  assert.equal(parsed.success, false, text);
  return parsed.error?.issues[0]?.message ?? '';
}

test('a directory, AWS and other servers can be chosen', () => {
  assert.deepEqual(ObjectStoreSetting.parse('directory'), { kind: 'directory' });
  assert.deepEqual(ObjectStoreSetting.parse('s3://my-bucket?region=eu-central-1'), {
    kind: 's3',
    bucket: 'my-bucket',
    prefix: '',
    endpoint: undefined,
    region: 'eu-central-1',
    isPathStyle: false,
    caPath: undefined,
  });
  const other =
    's3://b.1-x/some/prefix/?endpoint=https://s3.example.com:9000/&ca=/etc/ca.pem&path_style=false';
  assert.deepEqual(ObjectStoreSetting.parse(other), {
    kind: 's3',
    bucket: 'b.1-x',
    prefix: 'some/prefix',
    endpoint: 'https://s3.example.com:9000',
    region: 'us-east-1',
    isPathStyle: false,
    caPath: '/etc/ca.pem',
  });
});

test('a store is passed on as a setting that means the same', () => {
  for (const text of [
    'directory',
    's3://my-bucket?region=eu-central-1',
    's3://b.1-x/some/prefix/?endpoint=https://s3.example.com:9000/&ca=/etc/my%20ca%26b.pem&path_style=false',
    's3://b-1?endpoint=http://127.0.0.1:7070',
    's3://b-1?endpoint=http://10.0.0.1&plain_http=true',
  ]) {
    const config = ObjectStoreSetting.parse(text);
    assert.deepEqual(ObjectStoreSetting.parse(formatObjectStore(config)), config);
  }
});

test('the bucket is in the path by default if the server is not that of AWS', () => {
  const parsed = ObjectStoreSetting.parse('s3://bucket?endpoint=https://s3.example.com');
  assert.equal(parsed.kind === 's3' && parsed.isPathStyle, true);
});

test('plain HTTP is for loopback, unless the operator allows it', () => {
  for (const host of ['127.0.0.1:7070', 'localhost', '[::1]:1'])
    assert.equal(ObjectStoreSetting.safeParse(`s3://bucket?endpoint=http://${host}`).success, true, host);
  for (const host of ['10.0.0.1', 's3.example.com', '127.0.0.1.example.com']) {
    const text = `s3://bucket?endpoint=http://${host}`;
    assert.match(explain(text), /plain HTTP.*use https:\/\/, or add plain_http=true/u);
    assert.equal(ObjectStoreSetting.safeParse(`${text}&plain_http=true`).success, true, host);
  }
});

test('an invalid value is refused with the remedy', () => {
  const refused: [string, RegExp][] = [
    ['', /must be of the form s3:/u],
    ['/var/lib/objects', /must be of the form s3:/u],
    ['https://bucket', /must be of the form s3:/u],
    ['s3://', /must be of the form s3:/u],
    ['s3://UPPER?region=us', /must be of the form s3:/u],
    ['s3://bucket:80?region=us', /must be of the form s3:/u],
    ['s3://bucket', /must have region=…, or endpoint=/u],
    ['s3://bucket?region=EU!', /region= must be a name/u],
    ['s3://bucket?region=eu&region=us', /has region= twice/u],
    ['s3://bucket?region=eu&acl=public', /unknown parameter; known are endpoint, region/u],
    ['s3://bucket?region=eu&path_style=yes', /path_style= must be true or false/u],
    ['s3://bucket?region=eu&ca=ca.pem', /ca= must be an absolute path/u],
    ['s3://bucket/a//b?region=eu', /must have a prefix of at most 100/u],
    ['s3://bucket/.hidden?region=eu', /must have a prefix/u],
    [`s3://bucket/${'a'.repeat(101)}?region=eu`, /must have a prefix/u],
    ['s3://bucket?endpoint=s3.example.com', /endpoint= must be of the form https:/u],
    ['s3://bucket?endpoint=https://s3.example.com/path', /endpoint= must be of the form https:/u],
  ];
  for (const [text, message] of refused) assert.match(explain(text), message, text);
});

test('credentials in the value are refused, and no error repeats them', () => {
  for (const text of [
    's3://KEY:hunter2@bucket?region=eu',
    's3://bucket?endpoint=https://KEY:hunter2@s3.example.com',
    's3://bucket?region=eu&secret=hunter2',
    's3://bucket?region=eu&hunter2=1',
    's3://hunter2:hunter2@:hunter2',
  ])
    assert.ok(!explain(text).includes('hunter2'), explain(text));
  assert.match(
    explain('s3://KEY:hunter2@bucket?region=eu'),
    /must not contain credentials; give them as AWS_/u,
  );
});
