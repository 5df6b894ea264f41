import { useSignal, type Signal } from '@preact/signals';
import type { Preview, Sandbox } from '../../../../../sdk/src/index.ts';
import { useResource } from '../../../service/resource.ts';
import { Button, IconButton } from '../../../ui/Button.tsx';
import { CopyAsCode } from '../../../ui/CopyAsCode.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { SelectField, TextField } from '../../../ui/Field.tsx';
import { Card } from '../../../ui/Page.tsx';
import { useAction } from '../../../ui/use-action.ts';
import { codeOf } from '../sandbox-code.ts';
import { readListeningPorts } from './listening-ports.ts';
import { COMMON_PORTS, LIFETIMES, parsePort } from './port-field.ts';

interface PreviewFormProps {
  sandbox: Sandbox;
  onCreated: (preview: Preview) => void;
}

/** Makes a link to a port. */
export function PreviewForm({ sandbox, onCreated }: PreviewFormProps) {
  const port = useSignal('');
  const seconds = useSignal('3600');
  const action = useAction();
  const number = parsePort(port.value);
  const expiresIn = Number(seconds.value);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (number === undefined) return;
    await action.run(async () => onCreated(await sandbox.preview(number, { expiresIn })));
  };
  return (
    <Card title="Open a port">
      <form class="port-form" onSubmit={(event) => void submit(event)}>
        <TextField
          label="Port"
          value={port.value}
          onValue={(value) => (port.value = value)}
          error={port.value !== '' && number === undefined ? 'Enter a number from 1 to 65535.' : undefined}
          attributes={{ inputMode: 'numeric', placeholder: '8000', maxLength: 7 }}
        />
        <SelectField
          label="The link is valid for"
          value={seconds.value}
          options={LIFETIMES}
          onValue={(value) => (seconds.value = value)}
        />
        <div class="port-form-actions">
          <Button kind="primary" type="submit" isBusy={action.isBusy} isDisabled={number === undefined}>
            Create link
          </Button>
          <CopyAsCode
            {...codeOf({
              id: sandbox.record.id,
              method: 'POST',
              path: `/ports/${number ?? 8000}/preview`,
              body: { expires_in: expiresIn },
              typescript: `console.log((await sandbox?.preview(${number ?? 8000}, { expiresIn: ${expiresIn} }))?.url);`,
              python: `print(sandbox.preview(${number ?? 8000}, expires_in=${expiresIn}).url)`,
            })}
          />
        </div>
      </form>
      {action.error !== undefined && (
        <p class="fault" role="alert">
          {action.error}
        </p>
      )}
      <Suggestions sandbox={sandbox} port={port} />
      {number !== undefined && <ProxyAddress url={sandbox.url(number)} />}
    </Card>
  );
}

function Suggestions({ sandbox, port }: { sandbox: Sandbox; port: Signal<string> }) {
  const { value, error, isLoading, reload } = useResource(
    (signal) => readListeningPorts(sandbox, signal),
    [sandbox.record.id],
  );
  const hasListeners = value !== undefined && value.length > 0;
  const offered = hasListeners ? value : COMMON_PORTS.map((common) => ({ port: common, isLoopback: false }));
  return (
    <div class="port-suggestions">
      <span class="soft">
        {hasListeners
          ? 'The sandbox listens on'
          : value === undefined
            ? 'Common ports'
            : 'The sandbox listens on no port yet. Common ones are'}
      </span>
      {offered.map(({ port: number, isLoopback }) => (
        <button
          key={number}
          type="button"
          class="chip"
          title={isLoopback ? 'Listens on loopback, which the service reaches as well' : undefined}
          aria-pressed={port.value === String(number)}
          onClick={() => (port.value = String(number))}
        >
          {number}
        </button>
      ))}
      <IconButton icon="refresh" label="Look for ports again" isDisabled={isLoading} onClick={reload} />
      {error !== undefined && <span class="soft">The ports of the sandbox could not be read.</span>}
    </div>
  );
}

function ProxyAddress({ url }: { url: string }) {
  return (
    <div class="field">
      <span class="soft">
        Programs reach the port here with an API key, over HTTP and WebSocket, without a link
      </span>
      <div class="secret">
        <code>{url}</code>
        <CopyButton text={url} label="Copy the address" />
      </div>
    </div>
  );
}
