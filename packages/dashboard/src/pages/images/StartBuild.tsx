import { useSignal, type Signal } from '@preact/signals';
import type { BuildRequest, ImageBuildInfo } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Button, IconButton } from '../../ui/Button.tsx';
import { Checkbox, TextArea, TextField } from '../../ui/Field.tsx';
import { startBuildCall } from './image-calls.ts';
import { findStepFault, STEP_EXAMPLES, STEP_KINDS, toBuildStep, type StepLine } from './step-lines.ts';
import { Segments } from '../../ui/Segments.tsx';

const DOCKERFILE = 'FROM node:22-slim\nRUN npm install -g pnpm\nENV NODE_ENV=production\n';

interface StartProps {
  onClose: () => void;
  onStarted: (build: ImageBuildInfo) => void;
}

/** Starts a build from the text of a Dockerfile, or from an image and steps. */
export function StartBuild({ onClose, onStarted }: StartProps) {
  const name = useSignal('');
  const isDockerfile = useSignal(true);
  const dockerfile = useSignal(DOCKERFILE);
  const from = useSignal('coppice/base:1');
  const lines = useSignal<readonly StepLine[]>([{ id: 1, kind: 'RUN', text: '' }]);
  const noCache = useSignal(false);
  const memMiB = useSignal('');
  const started = useSignal<ImageBuildInfo | undefined>(undefined);
  const options = {
    name: name.value.trim() || 'app:1',
    ...(noCache.value && { noCache: true }),
    ...(memMiB.value !== '' && { memMiB: Number(memMiB.value) }),
  };
  const request: BuildRequest = isDockerfile.value
    ? { ...options, dockerfile: dockerfile.value }
    : { ...options, from: from.value.trim(), steps: lines.value.map(toBuildStep) };
  const hasContent = isDockerfile.value
    ? dockerfile.value.trim() !== ''
    : from.value.trim() !== '' && lines.value.every((line) => findStepFault(line) === undefined);
  return (
    <ActionDialog
      title="New build"
      verb="Start build"
      size="large"
      isDisabled={name.value.trim() === '' || !hasContent}
      act={async () => (started.value = await requireClient().builds.start(request))}
      onClose={onClose}
      onDone={() => started.value !== undefined && onStarted(started.value)}
      code={startBuildCall(request)}
    >
      <TextField
        label="Name of the image"
        hint="With a tag. Sandboxes are created from built/ and this name. A build with the same name replaces it."
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ autofocus: true, placeholder: 'app:1', maxLength: 256 }}
      />
      <Segments
        label="Kind of build"
        options={[
          [true, 'Dockerfile'],
          [false, 'Steps'],
        ]}
        value={isDockerfile.value}
        onValue={(isOne) => (isDockerfile.value = isOne)}
      />
      {isDockerfile.value ? (
        <TextArea
          label="Dockerfile"
          hint="COPY and ADD need files, which only the coppice command and the clients upload."
          rows={10}
          value={dockerfile.value}
          onValue={(value) => (dockerfile.value = value)}
        />
      ) : (
        <StepEditor from={from} lines={lines} />
      )}
      <details class="more">
        <summary>More</summary>
        <TextField
          label="Memory of the build in MiB"
          isOptional
          value={memMiB.value}
          onValue={(value) => (memMiB.value = value)}
          attributes={{ type: 'number', min: 128, step: 128, placeholder: '1024' }}
        />
        <Checkbox
          label="Run all steps"
          hint="By default, a build begins with what the same first steps left in an earlier build."
          isChecked={noCache.value}
          onChange={(isChecked) => (noCache.value = isChecked)}
        />
      </details>
    </ActionDialog>
  );
}

function StepEditor({ from, lines }: { from: Signal<string>; lines: Signal<readonly StepLine[]> }) {
  const change = (id: number, fields: Partial<StepLine>): void => {
    lines.value = lines.value.map((line) => (line.id === id ? { ...line, ...fields } : line));
  };
  const add = (): void => {
    const id = 1 + Math.max(0, ...lines.value.map((line) => line.id));
    lines.value = [...lines.value, { id, kind: 'RUN', text: '' }];
  };
  return (
    <>
      <TextField
        label="Begin with the image"
        value={from.value}
        onValue={(value) => (from.value = value)}
        attributes={{ maxLength: 512 }}
      />
      <ol class="step-lines">
        {lines.value.map((line, index) => (
          <StepRow
            key={line.id}
            line={line}
            number={index + 1}
            onChange={(fields) => change(line.id, fields)}
            onRemove={() => (lines.value = lines.value.filter(({ id }) => id !== line.id))}
          />
        ))}
      </ol>
      <div class="row">
        <Button icon="plus" onClick={add}>
          Add a step
        </Button>
      </div>
    </>
  );
}

interface RowProps {
  line: StepLine;
  number: number;
  onChange: (fields: Partial<StepLine>) => void;
  onRemove: () => void;
}

function StepRow({ line, number, onChange, onRemove }: RowProps) {
  const fault = line.text === '' ? undefined : findStepFault(line);
  return (
    <li class="step-line">
      <select
        aria-label={`Kind of step ${number}`}
        value={line.kind}
        onChange={(event) => onChange({ kind: event.currentTarget.value as StepLine['kind'] })}
      >
        {STEP_KINDS.map(([kind, label]) => (
          <option key={kind} value={kind}>
            {label}
          </option>
        ))}
      </select>
      <input
        class="mono"
        aria-label={`Step ${number}`}
        aria-invalid={fault !== undefined}
        placeholder={STEP_EXAMPLES[line.kind]}
        value={line.text}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => onChange({ text: event.currentTarget.value })}
      />
      <IconButton icon="trash" label={`Remove step ${number}`} onClick={onRemove} />
      {fault !== undefined && <span class="fault step-fault">This step {fault}.</span>}
    </li>
  );
}
