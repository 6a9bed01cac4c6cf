; What AVX-512 and AMX have and other processors lack, in plain operations. Eight tiles
; are 16 rows of 64 bytes each, one behind the other; the first tile's address comes
; first. See Intel's Architectures Software Developer's Manual, volume 2.

define internal ptr @emulated.row(ptr %tiles, i8 %tile, i64 %row) {
  %n = zext i8 %tile to i64
  %first = mul i64 %n, 16
  %k = add i64 %first, %row
  %place = getelementptr <16 x i32>, ptr %tiles, i64 %k
  ret ptr %place
}

define internal void @emulated.ldtilecfg(ptr %tiles, ptr %shapes) {
  ret void
}

define internal void @emulated.tilerelease(ptr %tiles) {
  ret void
}

define internal void @emulated.tilezero(ptr %tiles, i8 %tile) {
  %place = call ptr @emulated.row(ptr %tiles, i8 %tile, i64 0)
  store [256 x i32] zeroinitializer, ptr %place
  ret void
}

define internal void @emulated.tileloadd64(ptr %tiles, i8 %tile, ptr %from, i64 %stride) {
entry:
  br label %loop
loop:
  %row = phi i64 [ 0, %entry ], [ %next, %loop ]
  %to = call ptr @emulated.row(ptr %tiles, i8 %tile, i64 %row)
  %offset = mul i64 %row, %stride
  %at = getelementptr i8, ptr %from, i64 %offset
  %x = load <16 x i32>, ptr %at, align 1
  store <16 x i32> %x, ptr %to
  %next = add i64 %row, 1
  %more = icmp ult i64 %next, 16
  br i1 %more, label %loop, label %done
done:
  ret void
}

define internal void @emulated.tilestored64(ptr %tiles, i8 %tile, ptr %to, i64 %stride) {
entry:
  br label %loop
loop:
  %row = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = call ptr @emulated.row(ptr %tiles, i8 %tile, i64 %row)
  %offset = mul i64 %row, %stride
  %at = getelementptr i8, ptr %to, i64 %offset
  %x = load <16 x i32>, ptr %from
  store <16 x i32> %x, ptr %at, align 1
  %next = add i64 %row, 1
  %more = icmp ult i64 %next, 16
  br i1 %more, label %loop, label %done
done:
  ret void
}

define internal <16 x i32> @emulated.splat(ptr %words, i64 %k) {
  %place = getelementptr i32, ptr %words, i64 %k
  %word = load i32, ptr %place
  %one = insertelement <16 x i32> poison, i32 %word, i64 0
  %all = shufflevector <16 x i32> %one, <16 x i32> poison, <16 x i32> zeroinitializer
  ret <16 x i32> %all
}

; sums[m] = what `step` makes of the words of rows[m] and the lines of columns, from two
; vectors on, which `finish` adds to the sums.
define internal void @emulated.multiply(ptr %tiles, i8 %sums, i8 %rows, i8 %columns, ptr %step, ptr %finish) {
entry:
  br label %rows.head
rows.head:
  %m = phi i64 [ 0, %entry ], [ %m.next, %rows.end ]
  %sum = call ptr @emulated.row(ptr %tiles, i8 %sums, i64 %m)
  %row = call ptr @emulated.row(ptr %tiles, i8 %rows, i64 %m)
  br label %words
words:
  %k = phi i64 [ 0, %rows.head ], [ %k.next, %words ]
  %before = phi <32 x i32> [ zeroinitializer, %rows.head ], [ %after, %words ]
  %x = call <16 x i32> @emulated.splat(ptr %row, i64 %k)
  %line = call ptr @emulated.row(ptr %tiles, i8 %columns, i64 %k)
  %y = load <16 x i32>, ptr %line
  %after = call <32 x i32> %step(<32 x i32> %before, <16 x i32> %x, <16 x i32> %y)
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, 16
  br i1 %k.more, label %words, label %rows.end
rows.end:
  %even = shufflevector <32 x i32> %after, <32 x i32> poison, <16 x i32> <EVERY_1_FROM_0>
  %odd = shufflevector <32 x i32> %after, <32 x i32> poison, <16 x i32> <EVERY_1_FROM_16>
  %start = load <16 x i32>, ptr %sum
  %found = call <16 x i32> %finish(<16 x i32> %start, <16 x i32> %even, <16 x i32> %odd)
  store <16 x i32> %found, ptr %sum
  %m.next = add i64 %m, 1
  %m.more = icmp ult i64 %m.next, 16
  br i1 %m.more, label %rows.head, label %done
done:
  ret void
}

define internal void @emulated.tdpbf16ps(ptr %tiles, i8 %sums, i8 %rows, i8 %columns) {
  call void @emulated.multiply(ptr %tiles, i8 %sums, i8 %rows, i8 %columns, ptr @emulated.bfloat16, ptr @emulated.bfloat16.end)
  ret void
}

define internal void @emulated.tdpbssd(ptr %tiles, i8 %sums, i8 %rows, i8 %columns) {
  call void @emulated.multiply(ptr %tiles, i8 %sums, i8 %rows, i8 %columns, ptr @emulated.int8, ptr @emulated.int8.end)
  ret void
}

define internal void @emulated.tdpbusd(ptr %tiles, i8 %sums, i8 %rows, i8 %columns) {
  call void @emulated.multiply(ptr %tiles, i8 %sums, i8 %rows, i8 %columns, ptr @emulated.uint8, ptr @emulated.int8.end)
  ret void
}

; Each of a word's two products has a sum of its own, and the two are added at the end.
define internal <32 x i32> @emulated.bfloat16(<32 x i32> %sums, <16 x i32> %x, <16 x i32> %y) {
  %start = bitcast <32 x i32> %sums to <32 x float>
  %a = call <32 x float> @emulated.widened(<16 x i32> %x)
  %b = call <32 x float> @emulated.widened(<16 x i32> %y)
  %both = call <32 x float> @llvm.fma.v32f32(<32 x float> %a, <32 x float> %b, <32 x float> %start)
  %found = bitcast <32 x float> %both to <32 x i32>
  ret <32 x i32> %found
}

define internal <32 x float> @emulated.widened(<16 x i32> %words) {
  %even = shl <16 x i32> %words, splat (i32 16)
  %odd = and <16 x i32> %words, splat (i32 -65536)
  %bits = shufflevector <16 x i32> %even, <16 x i32> %odd, <32 x i32> <EVERY_1_FROM_0>
  %found = bitcast <32 x i32> %bits to <32 x float>
  ret <32 x float> %found
}

define internal <16 x i32> @emulated.bfloat16.end(<16 x i32> %start, <16 x i32> %even, <16 x i32> %odd) {
  %a = bitcast <16 x i32> %even to <16 x float>
  %b = bitcast <16 x i32> %odd to <16 x float>
  %c = bitcast <16 x i32> %start to <16 x float>
  %both = fadd <16 x float> %a, %b
  %sum = fadd <16 x float> %c, %both
  %found = bitcast <16 x float> %sum to <16 x i32>
  ret <16 x i32> %found
}

define internal <16 x float> @emulated.avx512bf16.dpbf16ps.512(<16 x float> %sums, <32 x i16> %x, <32 x i16> %y) {
  %x.32 = bitcast <32 x i16> %x to <16 x i32>
  %y.32 = bitcast <32 x i16> %y to <16 x i32>
  %a = call <32 x float> @emulated.widened(<16 x i32> %x.32)
  %b = call <32 x float> @emulated.widened(<16 x i32> %y.32)
  %a.0 = shufflevector <32 x float> %a, <32 x float> poison, <16 x i32> <EVERY_1_FROM_0>
  %b.0 = shufflevector <32 x float> %b, <32 x float> poison, <16 x i32> <EVERY_1_FROM_0>
  %a.1 = shufflevector <32 x float> %a, <32 x float> poison, <16 x i32> <EVERY_1_FROM_16>
  %b.1 = shufflevector <32 x float> %b, <32 x float> poison, <16 x i32> <EVERY_1_FROM_16>
  ; The second product first, each added with one rounding.
  %high = call <16 x float> @llvm.fma.v16f32(<16 x float> %a.1, <16 x float> %b.1, <16 x float> %sums)
  %found = call <16 x float> @llvm.fma.v16f32(<16 x float> %a.0, <16 x float> %b.0, <16 x float> %high)
  ret <16 x float> %found
}

define internal <32 x i32> @emulated.int8(<32 x i32> %sums, <16 x i32> %x, <16 x i32> %y) {
  %x.8 = bitcast <16 x i32> %x to <64 x i8>
  %x.32 = sext <64 x i8> %x.8 to <64 x i32>
  %found = call <32 x i32> @emulated.bytes(<32 x i32> %sums, <64 x i32> %x.32, <16 x i32> %y)
  ret <32 x i32> %found
}

define internal <32 x i32> @emulated.uint8(<32 x i32> %sums, <16 x i32> %x, <16 x i32> %y) {
  %x.8 = bitcast <16 x i32> %x to <64 x i8>
  %x.32 = zext <64 x i8> %x.8 to <64 x i32>
  %found = call <32 x i32> @emulated.bytes(<32 x i32> %sums, <64 x i32> %x.32, <16 x i32> %y)
  ret <32 x i32> %found
}

define internal <32 x i32> @emulated.bytes(<32 x i32> %sums, <64 x i32> %x.32, <16 x i32> %y) {
  %y.8 = bitcast <16 x i32> %y to <64 x i8>
  %y.32 = sext <64 x i8> %y.8 to <64 x i32>
  %products = mul <64 x i32> %x.32, %y.32
  %four = call <16 x i32> @emulated.add_fours(<16 x i32> zeroinitializer, <64 x i32> %products)
  %both = shufflevector <16 x i32> %four, <16 x i32> zeroinitializer, <32 x i32> <EVERY_1_FROM_0>
  %found = add <32 x i32> %sums, %both
  ret <32 x i32> %found
}

define internal <16 x i32> @emulated.int8.end(<16 x i32> %start, <16 x i32> %even, <16 x i32> %odd) {
  %found = add <16 x i32> %start, %even
  ret <16 x i32> %found
}

define internal <16 x i32> @emulated.avx512.vpdpbusd.512(<16 x i32> %sums, <16 x i32> %x, <16 x i32> %y) {
  %x.8 = bitcast <16 x i32> %x to <64 x i8>
  %y.8 = bitcast <16 x i32> %y to <64 x i8>
  %x.32 = zext <64 x i8> %x.8 to <64 x i32>
  %y.32 = sext <64 x i8> %y.8 to <64 x i32>
  %products = mul <64 x i32> %x.32, %y.32
  %found = call <16 x i32> @emulated.add_fours(<16 x i32> %sums, <64 x i32> %products)
  ret <16 x i32> %found
}

define internal <16 x i32> @emulated.add_fours(<16 x i32> %sums, <64 x i32> %terms) {
  %a = shufflevector <64 x i32> %terms, <64 x i32> poison, <16 x i32> <EVERY_4_FROM_0>
  %b = shufflevector <64 x i32> %terms, <64 x i32> poison, <16 x i32> <EVERY_4_FROM_1>
  %c = shufflevector <64 x i32> %terms, <64 x i32> poison, <16 x i32> <EVERY_4_FROM_2>
  %d = shufflevector <64 x i32> %terms, <64 x i32> poison, <16 x i32> <EVERY_4_FROM_3>
  %ab = add <16 x i32> %a, %b
  %cd = add <16 x i32> %c, %d
  %all = add <16 x i32> %ab, %cd
  %found = add <16 x i32> %sums, %all
  ret <16 x i32> %found
}

define internal <8 x i32> @emulated.avx512.vpdpbusd.256(<8 x i32> %sums, <8 x i32> %x, <8 x i32> %y) {
  %a = shufflevector <8 x i32> %sums, <8 x i32> poison, <16 x i32> <EVERY_1_FROM_0>
  %b = shufflevector <8 x i32> %x, <8 x i32> poison, <16 x i32> <EVERY_1_FROM_0>
  %c = shufflevector <8 x i32> %y, <8 x i32> poison, <16 x i32> <EVERY_1_FROM_0>
  %all = call <16 x i32> @emulated.avx512.vpdpbusd.512(<16 x i32> %a, <16 x i32> %b, <16 x i32> %c)
  %found = shufflevector <16 x i32> %all, <16 x i32> poison, <8 x i32> <EVERY_1_FROM_0>
  ret <8 x i32> %found
}

define internal <4 x i32> @emulated.avx512.vpdpbusd.128(<4 x i32> %sums, <4 x i32> %x, <4 x i32> %y) {
  %a = shufflevector <4 x i32> %sums, <4 x i32> poison, <8 x i32> <EVERY_1_FROM_0>
  %b = shufflevector <4 x i32> %x, <4 x i32> poison, <8 x i32> <EVERY_1_FROM_0>
  %c = shufflevector <4 x i32> %y, <4 x i32> poison, <8 x i32> <EVERY_1_FROM_0>
  %all = call <8 x i32> @emulated.avx512.vpdpbusd.256(<8 x i32> %a, <8 x i32> %b, <8 x i32> %c)
  %found = shufflevector <8 x i32> %all, <8 x i32> poison, <4 x i32> <EVERY_1_FROM_0>
  ret <4 x i32> %found
}

; The products of bytes without and with a sign, pairs of which are added in 16 bits.
define internal <32 x i16> @emulated.avx512.pmaddubs.w.512(<64 x i8> %x, <64 x i8> %y) {
  %x.32 = zext <64 x i8> %x to <64 x i32>
  %y.32 = sext <64 x i8> %y to <64 x i32>
  %products = mul <64 x i32> %x.32, %y.32
  %even = shufflevector <64 x i32> %products, <64 x i32> poison, <32 x i32> <EVERY_2_FROM_0>
  %odd = shufflevector <64 x i32> %products, <64 x i32> poison, <32 x i32> <EVERY_2_FROM_1>
  %sum = add <32 x i32> %even, %odd
  %low = call <32 x i32> @llvm.smax.v32i32(<32 x i32> %sum, <32 x i32> splat (i32 -32768))
  %both = call <32 x i32> @llvm.smin.v32i32(<32 x i32> %low, <32 x i32> splat (i32 32767))
  %found = trunc <32 x i32> %both to <32 x i16>
  ret <32 x i16> %found
}

define internal <16 x i32> @emulated.avx512.pmaddw.d.512(<32 x i16> %x, <32 x i16> %y) {
  %x.32 = sext <32 x i16> %x to <32 x i32>
  %y.32 = sext <32 x i16> %y to <32 x i32>
  %products = mul <32 x i32> %x.32, %y.32
  %even = shufflevector <32 x i32> %products, <32 x i32> poison, <16 x i32> <EVERY_2_FROM_0>
  %odd = shufflevector <32 x i32> %products, <32 x i32> poison, <16 x i32> <EVERY_2_FROM_1>
  %found = add <16 x i32> %even, %odd
  ret <16 x i32> %found
}

; Rounded to the nearest, a tie to the even one; what is denormal becomes 0.
define internal <16 x i16> @emulated.avx512bf16.cvtneps2bf16.512(<16 x float> %x) {
  %given = bitcast <16 x float> %x to <16 x i32>
  %exponent = and <16 x i32> %given, splat (i32 2139095040)
  %sign = and <16 x i32> %given, splat (i32 -2147483648)
  %is_denormal = icmp eq <16 x i32> %exponent, zeroinitializer
  %bits = select <16 x i1> %is_denormal, <16 x i32> %sign, <16 x i32> %given
  %upper = lshr <16 x i32> %bits, splat (i32 16)
  %odd = and <16 x i32> %upper, splat (i32 1)
  %half = add <16 x i32> %odd, splat (i32 32767)
  %sum = add <16 x i32> %bits, %half
  %rounded = lshr <16 x i32> %sum, splat (i32 16)
  %quiet = or <16 x i32> %upper, splat (i32 64)
  %is_nan = fcmp uno <16 x float> %x, %x
  %found = select <16 x i1> %is_nan, <16 x i32> %quiet, <16 x i32> %rounded
  %narrow = trunc <16 x i32> %found to <16 x i16>
  ret <16 x i16> %narrow
}

; The same of two vectors; the second operand comes first.
define internal <32 x i16> @emulated.avx512bf16.cvtne2ps2bf16.512(<16 x float> %high, <16 x float> %low) {
  %a = call <16 x i16> @emulated.avx512bf16.cvtneps2bf16.512(<16 x float> %low)
  %b = call <16 x i16> @emulated.avx512bf16.cvtneps2bf16.512(<16 x float> %high)
  %both = shufflevector <16 x i16> %a, <16 x i16> %b, <32 x i32> <EVERY_1_FROM_0>
  ret <32 x i16> %both
}

; Whether x is denormal or NaN: kernels ask for no other classes.
define internal <16 x i1> @emulated.avx512.fpclass.ps.512(<16 x float> %x, i32 %classes) {
  %bits = bitcast <16 x float> %x to <16 x i32>
  %size = and <16 x i32> %bits, splat (i32 2147483647)
  %nonzero = icmp ne <16 x i32> %size, splat (i32 0)
  %small = icmp ult <16 x i32> %size, splat (i32 8388608)
  %denormal = and <16 x i1> %nonzero, %small
  %nan = fcmp uno <16 x float> %x, %x
  %found = or <16 x i1> %denormal, %nan
  ret <16 x i1> %found
}

; x * 2 ** floor(e): exact in float64, so that it is rounded once. Other lanes of the
; mask keep another value.
define internal <16 x float> @emulated.avx512.mask.scalef.ps.512(<16 x float> %x, <16 x float> %e, <16 x float> %other, i16 %mask, i32 %mode) {
  %down = call <16 x float> @llvm.floor.v16f32(<16 x float> %e)
  %least = call <16 x float> @llvm.maxnum.v16f32(<16 x float> %down, <16 x float> splat (float -400.0))
  %most = call <16 x float> @llvm.minnum.v16f32(<16 x float> %least, <16 x float> splat (float 400.0))
  %n = fptosi <16 x float> %most to <16 x i64>
  %biased = add <16 x i64> %n, splat (i64 1023)
  %bits = shl <16 x i64> %biased, splat (i64 52)
  %power = bitcast <16 x i64> %bits to <16 x double>
  %wide = fpext <16 x float> %x to <16 x double>
  %product = fmul <16 x double> %wide, %power
  %narrow = fptrunc <16 x double> %product to <16 x float>
  %nan = fcmp uno <16 x float> %e, %e
  %all = select <16 x i1> %nan, <16 x float> %e, <16 x float> %narrow
  %lanes = bitcast i16 %mask to <16 x i1>
  %found = select <16 x i1> %lanes, <16 x float> %all, <16 x float> %other
  ret <16 x float> %found
}

; An exact reciprocal: the instruction has an error of up to 2**-14.
define internal <16 x float> @emulated.avx512.rcp14.ps.512(<16 x float> %x, <16 x float> %other, i16 %mask) {
  %found = fdiv <16 x float> splat (float 1.0), %x
  ret <16 x float> %found
}

define internal <16 x float> @emulated.avx512.rsqrt14.ps.512(<16 x float> %x, <16 x float> %other, i16 %mask) {
  %root = call <16 x float> @llvm.sqrt.v16f32(<16 x float> %x)
  %found = fdiv <16 x float> splat (float 1.0), %root
  ret <16 x float> %found
}

; floor(log2(|x|)): the exponent of a denormal number is that of x * 2 ** 24, minus 24.
define internal <16 x float> @emulated.avx512.mask.getexp.ps.512(<16 x float> %x, <16 x float> %other, i16 %mask, i32 %mode) {
  %a = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x)
  %is_small = fcmp olt <16 x float> %a, splat (float 0x3810000000000000)
  %large = fmul <16 x float> %a, splat (float 0x4170000000000000)
  %normal = select <16 x i1> %is_small, <16 x float> %large, <16 x float> %a
  %bits = bitcast <16 x float> %normal to <16 x i32>
  %biased = lshr <16 x i32> %bits, splat (i32 23)
  %offset = select <16 x i1> %is_small, <16 x i32> splat (i32 151), <16 x i32> splat (i32 127)
  %exponent = sub <16 x i32> %biased, %offset
  %number = sitofp <16 x i32> %exponent to <16 x float>
  %is_zero = fcmp oeq <16 x float> %a, zeroinitializer
  %with_zero = select <16 x i1> %is_zero, <16 x float> splat (float 0xFFF0000000000000), <16 x float> %number
  %is_finite = fcmp olt <16 x float> %a, splat (float 0x7FF0000000000000)
  %found = select <16 x i1> %is_finite, <16 x float> %with_zero, <16 x float> %a
  ret <16 x float> %found
}

; x * 2 ** -n in [3/4, 3/2), 1 for 0 and infinity, NaN for negative numbers.
define internal <16 x float> @emulated.avx512.mask.getmant.ps.512(<16 x float> %x, i32 %kind, <16 x float> %other, i16 %mask, i32 %mode) {
  %is_small = fcmp olt <16 x float> %x, splat (float 0x3810000000000000)
  %large = fmul <16 x float> %x, splat (float 0x4170000000000000)
  %normal = select <16 x i1> %is_small, <16 x float> %large, <16 x float> %x
  %bits = bitcast <16 x float> %normal to <16 x i32>
  %mantissa = and <16 x i32> %bits, splat (i32 8388607)
  %is_upper = icmp uge <16 x i32> %mantissa, splat (i32 4194304)
  %exponent = select <16 x i1> %is_upper, <16 x i32> splat (i32 1056964608), <16 x i32> splat (i32 1065353216)
  %joined = or <16 x i32> %mantissa, %exponent
  %number = bitcast <16 x i32> %joined to <16 x float>
  %is_zero = fcmp oeq <16 x float> %x, zeroinitializer
  %is_infinite = fcmp oeq <16 x float> %x, splat (float 0x7FF0000000000000)
  %is_limit = or <16 x i1> %is_zero, %is_infinite
  %positive = select <16 x i1> %is_limit, <16 x float> splat (float 1.0), <16 x float> %number
  %is_valid = fcmp oge <16 x float> %x, zeroinitializer
  %found = select <16 x i1> %is_valid, <16 x float> %positive, <16 x float> splat (float 0x7FF8000000000000)
  ret <16 x float> %found
}

define internal <8 x double> @emulated.avx512.rcp14.pd.512(<8 x double> %x, <8 x double> %other, i8 %mask) {
  %found = fdiv <8 x double> splat (double 1.0), %x
  ret <8 x double> %found
}

define internal <8 x double> @emulated.avx512.rsqrt14.pd.512(<8 x double> %x, <8 x double> %other, i8 %mask) {
  %root = call <8 x double> @llvm.sqrt.v8f64(<8 x double> %x)
  %found = fdiv <8 x double> splat (double 1.0), %root
  ret <8 x double> %found
}

; x * 2 ** floor(e) for |e| <= 2044, in two steps: the first product is exact.
define internal <8 x double> @emulated.avx512.mask.scalef.pd.512(<8 x double> %x, <8 x double> %e, <8 x double> %other, i8 %mask, i32 %mode) {
  %down = call <8 x double> @llvm.floor.v8f64(<8 x double> %e)
  %least = call <8 x double> @llvm.maxnum.v8f64(<8 x double> %down, <8 x double> splat (double -2044.0))
  %most = call <8 x double> @llvm.minnum.v8f64(<8 x double> %least, <8 x double> splat (double 2044.0))
  %n = fptosi <8 x double> %most to <8 x i64>
  %half = ashr <8 x i64> %n, splat (i64 1)
  %rest = sub <8 x i64> %n, %half
  %half.biased = add <8 x i64> %half, splat (i64 1023)
  %half.bits = shl <8 x i64> %half.biased, splat (i64 52)
  %half.power = bitcast <8 x i64> %half.bits to <8 x double>
  %rest.biased = add <8 x i64> %rest, splat (i64 1023)
  %rest.bits = shl <8 x i64> %rest.biased, splat (i64 52)
  %rest.power = bitcast <8 x i64> %rest.bits to <8 x double>
  %near = fmul <8 x double> %x, %half.power
  %product = fmul <8 x double> %near, %rest.power
  %nan = fcmp uno <8 x double> %e, %e
  %all = select <8 x i1> %nan, <8 x double> %e, <8 x double> %product
  %lanes = bitcast i8 %mask to <8 x i1>
  %found = select <8 x i1> %lanes, <8 x double> %all, <8 x double> %other
  ret <8 x double> %found
}

define internal <8 x double> @emulated.avx512.permvar.df.512(<8 x double> %x, <8 x i64> %index) {
  %memory = alloca <8 x double>, align 64
  store <8 x double> %x, ptr %memory, align 64
  %low = and <8 x i64> %index, splat (i64 7)
  %at = getelementptr double, ptr %memory, <8 x i64> %low
  %found = call <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr> %at, i32 8, <8 x i1> splat (i1 true), <8 x double> zeroinitializer)
  ret <8 x double> %found
}

define internal <16 x float> @emulated.avx512.permvar.sf.512(<16 x float> %x, <16 x i32> %index) {
  %memory = alloca <16 x float>, align 64
  store <16 x float> %x, ptr %memory, align 64
  %low = and <16 x i32> %index, splat (i32 15)
  %at = getelementptr float, ptr %memory, <16 x i32> %low
  %found = call <16 x float> @llvm.masked.gather.v16f32.v16p0(<16 x ptr> %at, i32 4, <16 x i1> splat (i1 true), <16 x float> zeroinitializer)
  ret <16 x float> %found
}

declare <16 x float> @llvm.masked.gather.v16f32.v16p0(<16 x ptr>, i32, <16 x i1>, <16 x float>)
declare <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x double>)
declare <8 x double> @llvm.sqrt.v8f64(<8 x double>)
declare <8 x double> @llvm.floor.v8f64(<8 x double>)
declare <8 x double> @llvm.maxnum.v8f64(<8 x double>, <8 x double>)
declare <8 x double> @llvm.minnum.v8f64(<8 x double>, <8 x double>)
declare <16 x float> @llvm.sqrt.v16f32(<16 x float>)
declare <16 x float> @llvm.fabs.v16f32(<16 x float>)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <32 x float> @llvm.fma.v32f32(<32 x float>, <32 x float>, <32 x float>)
declare <32 x i32> @llvm.smax.v32i32(<32 x i32>, <32 x i32>)
declare <32 x i32> @llvm.smin.v32i32(<32 x i32>, <32 x i32>)
declare <16 x float> @llvm.floor.v16f32(<16 x float>)
declare <16 x float> @llvm.maxnum.v16f32(<16 x float>, <16 x float>)
declare <16 x float> @llvm.minnum.v16f32(<16 x float>, <16 x float>)
