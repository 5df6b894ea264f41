import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { BuildProgress, Shape } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Checkbox, TextField } from '../../ui/Field.tsx';
import { formatBytes, formatDuration } from '../../ui/format.ts';
import { Progress } from '../../ui/Progress.tsx';
import { prepareImageCall } from './image-calls.ts';

const STEPS: Readonly<Record<string, string>> = {
  resolve: 'Looking the image up at its registry',
  pull: 'Downloading the layers',
  flatten: 'Writing the file system',
  template: 'Preparing a shape',
};

interface PrepareProps {
  image: string;
  onClose: () => void;
  onDone: () => void;
}

/** Pulls and prepares an image, and shows how far it is. */
export function PrepareImage({ image: given, onClose, onDone }: PrepareProps) {
  const image = useSignal(given);
  const hasShape = useSignal(given !== '');
  const vcpus = useSignal('2');
  const memMiB = useSignal('2048');
  const progress = useSignal<BuildProgress | undefined>(undefined);
  const end = useRef(new AbortController());
  useEffect(() => () => end.current.abort(), []);
  const shape: Shape | undefined = hasShape.value
    ? { vcpus: Number(vcpus.value), memMiB: Number(memMiB.value) }
    : undefined;
  const prepare = async (): Promise<void> => {
    await requireClient().images.build(image.value.trim(), {
      ...(shape && { shapes: [shape] }),
      signal: end.current.signal,
      onProgress: (step) => (progress.value = step),
    });
    onDone();
  };
  return (
    <ActionDialog
      title="Prepare an image"
      verb="Prepare"
      done={`${image.value} is ready.`}
      isDisabled={image.value.trim() === ''}
      act={async () => {
        progress.value = undefined;
        await prepare().finally(() => (progress.value = undefined));
      }}
      onClose={onClose}
      code={prepareImageCall(image.value || 'python:3.12-slim', shape)}
    >
      <TextField
        label="Image"
        hint="With a tag that does not move, such as python:3.12-slim, or a digest."
        value={image.value}
        onValue={(value) => (image.value = value)}
        attributes={{ autofocus: true, placeholder: 'python:3.12-slim', maxLength: 512 }}
      />
      <Checkbox
        label="A shape besides the default one"
        isChecked={hasShape.value}
        onChange={(isChecked) => (hasShape.value = isChecked)}
      />
      {hasShape.value && (
        <div class="columns narrow">
          <TextField
            label="CPUs"
            value={vcpus.value}
            onValue={(value) => (vcpus.value = value)}
            attributes={{ type: 'number', min: 1, max: 32 }}
          />
          <TextField
            label="Memory in MiB"
            value={memMiB.value}
            onValue={(value) => (memMiB.value = value)}
            attributes={{ type: 'number', min: 128, step: 128 }}
          />
        </div>
      )}
      {progress.value !== undefined && <StepProgress progress={progress.value} />}
    </ActionDialog>
  );
}

function StepProgress({ progress: { step, doneBytes, totalBytes, elapsedMs } }: { progress: BuildProgress }) {
  const label = STEPS[step] ?? step;
  const amount =
    doneBytes === null
      ? ''
      : `, ${formatBytes(doneBytes)}${totalBytes === null ? '' : ` of ${formatBytes(totalBytes)}`}`;
  return (
    <div class="stack" role="status">
      <span>
        {label}
        <span class="soft">
          {amount}, after {formatDuration(elapsedMs)}
        </span>
      </span>
      <Progress label={label} done={doneBytes} total={totalBytes} />
      <span class="hint">The service continues when you close this.</span>
    </div>
  );
}
