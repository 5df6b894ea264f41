import '../styles/meter.css';

interface MeterProps {
  label: string;
  value: number;
  max: number;
  /** The value in words. */
  text: string;
  /** The part of the bar that is filled, from 0 to 1; larger ones fill it, too. */
  share: number;
  tone?: 'warn' | 'bad' | undefined;
}

/** How much there is of what there may be. */
export function Meter({ label, value, max, text, share, tone }: MeterProps) {
  return (
    <span
      class={tone === undefined ? 'meter-track' : `meter-track ${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={max}
      aria-valuenow={value}
      aria-valuetext={text}
    >
      <span style={{ width: `${Math.max(0, Math.min(1, share)) * 100}%` }} />
    </span>
  );
}
