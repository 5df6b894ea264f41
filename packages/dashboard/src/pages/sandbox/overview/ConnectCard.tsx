import { useSignal } from '@preact/signals';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { Card } from '../../../ui/Page.tsx';
import { writeSnippet } from '../../../ui/snippets.ts';
import { codeOf } from '../sandbox-code.ts';
import { Segments } from '../../../ui/Segments.tsx';

type Way = 'shell' | 'curl' | 'typescript' | 'python';

const WAYS: readonly (readonly [Way, string])[] = [
  ['shell', 'Command line'],
  ['curl', 'curl'],
  ['typescript', 'TypeScript'],
  ['python', 'Python'],
];

/** How to reach the sandbox from elsewhere. */
export function ConnectCard({ id }: { id: string }) {
  const way = useSignal<Way>('shell');
  const text = writeConnection(id)[way.value];
  return (
    <Card title="Connect" actions={<CopyButton text={text} label="Copy the text" />}>
      <Segments
        label="Way to connect"
        options={WAYS}
        value={way.value}
        onValue={(one) => (way.value = one)}
      />
      <pre class="code" tabIndex={0}>
        <code>{text}</code>
      </pre>
    </Card>
  );
}

function writeConnection(id: string): Record<Way, string> {
  const call = codeOf({
    id,
    method: 'POST',
    path: '/exec',
    body: { command: 'uname -a' },
    typescript: "const { stdout } = await sandbox.exec('uname -a');\nconsole.log(stdout);",
    python: 'print(sandbox.exec("uname -a").stdout)',
  });
  const shell = [
    `coppice login --url ${location.origin}`,
    '',
    `coppice shell ${id}          # a terminal`,
    `coppice exec ${id} -- uname -a`,
    `coppice ssh ${id}            # with the ssh of this machine`,
    `coppice cp notes.txt ${id}:/workspace/`,
  ].join('\n');
  return { shell, ...writeSnippet(call, location.origin) };
}
