// Which token of one text is which of another, so that two texts of different length can be pointed at together.

const MOST = 4e6; // pairs of tokens that are looked at

// For each token of a, its place in b, or -1: those at both ends alike, between them the longest common subsequence.
export const sharedPlaces = (a, b) => {
  const places = new Int32Array(a.length).fill(-1);
  let [first, end] = [0, 0];
  while (first < Math.min(a.length, b.length) && a[first] === b[first]) { places[first] = first; first++; }
  const room = Math.min(a.length, b.length) - first;
  while (end < room && a[a.length - 1 - end] === b[b.length - 1 - end]) { places[a.length - 1 - end] = b.length - 1 - end; end++; }
  const [n, m] = [a.length - first - end, b.length - first - end];
  if (n * m > MOST) return places;
  const longest = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1)); // of what follows
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      longest[i][j] = a[first + i] === b[first + j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  for (let [i, j] = [0, 0]; i < n && j < m;) {
    if (a[first + i] === b[first + j]) { places[first + i] = first + j; i++; j++; }
    else if (longest[i + 1][j] >= longest[i][j + 1]) i++;
    else j++;
  }
  return places;
};
