// If one of these stops being an error, the check no longer checks: tsc then reports it.
import type { AnyPanel, Board, Custom, Options } from './types';

// @ts-expect-error a misspelt key of a board
export const key = { schemaVersion: 42, refesh: '10s' } satisfies Board;
// @ts-expect-error a place that is no number
export const place = { type: 'stat', gridPos: { h: 1, w: 1, x: 'left', y: 0 } } satisfies AnyPanel;
// @ts-expect-error a misspelt key deep inside
export const deep = { type: 'stat', fieldConfig: { defaults: { unti: 's' }, overrides: [] } } satisfies AnyPanel;
// @ts-expect-error a value that the enumeration does not have
export const value = { drawStyle: 'wiggle' } satisfies Custom['timeseries'];
// @ts-expect-error options of another panel
export const options = { showHeader: true, frameIndex: 0 } satisfies Options['stat'];
